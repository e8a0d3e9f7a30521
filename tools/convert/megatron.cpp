// Converts the arguments of Megatron-LM, and of its derivatives. Where they are absent Megatron's own
// defaults are written, since prun's differ.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <sstream>

#include "base/text.hpp"
#include "convert/layout.hpp"
#include "convert/megatron_experts.hpp"
#include "convert/sources.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"
#include "train/assemble/batch_ramp.hpp"

namespace prun::convert {
namespace {

constexpr Fate carried = Fate::carried, refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* on = "on";  // the value of a flag that stands alone
constexpr const char* tokens = "training reads tokens; prun tokenize makes them";
constexpr const char* planned = "the plan orders exchanges and computation";
constexpr const char* kernels = "the device plugin chooses kernels";
constexpr const char* profiles = "prun plan, prun trace and prun report say where time and memory go";
constexpr const char* starts = "a checkpoint of prun: prun RECIPE --set run.resume=CKPT";
constexpr const char* rendezvous = "ranks are started by prun, srun, mpirun or torchrun (docs/clusters.md)";
constexpr const char* other_model = "the models are gpt and llama; others are plugins";
constexpr const char* eight_bits = "precision.compute takes bf16, fp32 or fp64";
constexpr const char* checkpoints =
    "checkpoints are whole, checked, written beside training, and go on in any layout";
constexpr const char* experts = "the model has no experts";
constexpr const char* initial = "initial values are normal with 0.02, less where residuals are added";

constexpr std::array rules = {
    // These are of launchers.
    Rule{"master*", "", without_effect, rendezvous},
    Rule{"node-rank", "", without_effect, rendezvous},
    Rule{"rdzv*", "", without_effect, rendezvous},
    Rule{"hostfile", "", without_effect, rendezvous},
    Rule{"force-multi", "", without_effect, rendezvous},
    Rule{"distributed-backend", "", without_effect, "[comm] default = \"auto\" is nccl on GPUs"},
    Rule{"local-rank", "", without_effect, rendezvous},
    // These are of data and tokens.
    Rule{"vocab-file", "", without_effect, tokens},
    Rule{"merge-file", "", without_effect, tokens},
    Rule{"tokenizer-*", "", without_effect, tokens},
    Rule{"tiktoken-*", "", without_effect, tokens},
    Rule{"data-impl", "", without_effect, "a .idx beside the .bin says it"},
    Rule{"data-cache-path", "", without_effect, "the order of samples is computed, not kept"},
    Rule{"num-workers", "", without_effect, "samples are read ahead by the data plugin"},
    Rule{"no-mmap-bin-files", "", without_effect, "samples are read ahead by the data plugin"},
    Rule{"no-create-attention-mask-in-dataloader", "", without_effect, "attention is causal without a mask"},
    Rule{"dataloader-type", "cyclic", without_effect, "data.shuffle"},
    Rule{"dataloader-type", "single", without_effect, "data.shuffle"},
    Rule{"mock-data", "", refused, "data are asked for"},
    Rule{"train-data-path", "", refused, "name the sets in [data], [[data.blend]] and [[validation]]"},
    Rule{"valid-data-path", "", refused, "name the sets in [data], [[data.blend]] and [[validation]]"},
    Rule{"test-data-path", "", refused, "name the sets in [data], [[data.blend]] and [[validation]]"},
    Rule{"reset-attention-mask", "", refused, "data.documents = \"apart\", which needs data.end_of_text"},
    Rule{"reset-position-ids", "", refused, "positions count on over documents"},
    Rule{"eod-mask-loss", "", refused, "data.documents = \"apart\", which needs data.end_of_text"},
    // These say how things run.
    Rule{"use-mcore-models", "", without_effect, "there is one way to write a model"},
    Rule{"use-legacy-models", "", without_effect, "there is one way to write a model"},
    Rule{"transformer-impl", "", without_effect, kernels},
    Rule{"attention-backend", "", without_effect, kernels},
    Rule{"use-flash-attn*", "", without_effect, kernels},
    Rule{"no-masked-softmax-fusion", "", without_effect, kernels},
    Rule{"no-*-fusion", "", without_effect, kernels},
    Rule{"*-fusion", "", without_effect, kernels},
    Rule{"cross-entropy-fusion-impl", "", without_effect, kernels},
    Rule{"attention-softmax-in-fp32", "", without_effect, "softmax is in fp32"},
    Rule{"*cuda-graph*", "", without_effect, kernels},
    Rule{"no-async-tensor-model-parallel-allreduce", "", without_effect, planned},
    Rule{"overlap-*", "", without_effect, planned},
    Rule{"tp-comm-overlap*", "", without_effect, planned},
    Rule{"ddp-*", "", without_effect, planned},
    Rule{"DDP-impl", "", without_effect, planned},
    Rule{"delay-*", "", without_effect, planned},
    Rule{"align-*", "", without_effect, planned},
    Rule{"no-scatter-gather-tensors-in-pipeline", "", without_effect, planned},
    Rule{"manual-gc*", "", without_effect, "there is nothing to collect"},
    Rule{"empty-unused-memory-level", "", without_effect, "memory is planned and taken once"},
    Rule{"use-cpu-initialization", "", without_effect, "initial values are the same on every device"},
    Rule{"use-contiguous-buffers-in-local-ddp", "", without_effect, "gradients lie as the plan places them"},
    Rule{"accumulate-allreduce-grads-in-fp32", "", without_effect, "precision.gradient is fp32"},
    Rule{"grad-reduce-in-bf16", on, carried, "precision.reduce", "bf16"},
    Rule{"deterministic-mode", "", without_effect,
         "a recipe gives the same bits; on GPUs with device.deterministic"},
    Rule{"log-throughput", "", without_effect, "tokens/s and MFU are in every log"},
    Rule{"log-*", "", without_effect, "log.jsonl has them"},
    Rule{"timing-log-*", "", without_effect, profiles},
    Rule{"profile*", "", without_effect, profiles},
    Rule{"use-pytorch-profiler", "", without_effect, profiles},
    Rule{"tensorboard-queue-size", "", without_effect, "an event is written as it comes"},
    Rule{"tensorboard-log-interval", "", without_effect, "an event is written as it comes"},
    Rule{"wandb-project", "", carried, "observer.wandb.project"},
    Rule{"wandb-save-dir", "", carried, "observer.wandb.path"},
    Rule{"wandb-*", "", without_effect, "an offline run is written, and wandb sync takes the rest"},
    // These are of checkpoints.
    Rule{"load", "", refused,
         "Megatron's checkpoints are not read: prun import takes Hugging Face folders, run.resume "
         "checkpoints of prun"},
    Rule{"no-load-*", "", without_effect, starts},
    Rule{"no-save-*", "", without_effect, checkpoints},
    Rule{"finetune", "", without_effect, "model.init takes weights alone"},
    Rule{"pretrained-checkpoint", "", refused,
         "model.init takes a folder of Hugging Face, or a checkpoint of prun"},
    Rule{"ckpt-*", "", without_effect, checkpoints},
    Rule{"dist-ckpt-*", "", without_effect, checkpoints},
    Rule{"async-save", "", without_effect, checkpoints},
    Rule{"auto-detect-ckpt-format", "", without_effect, checkpoints},
    Rule{"use-checkpoint-*", "", refused, "options are the recipe's"},
    Rule{"override-opt_param-scheduler", "", without_effect, "options are the recipe's"},
    Rule{"exit-duration-in-mins", "", refused, "a signal ends a run after its step, such as sbatch --signal"},
    Rule{"exit-interval", "", refused, "run.steps says where a run ends"},
    Rule{"exit-signal-handler", "", without_effect, "a run that is told to stop saves"},
    // These are of number formats.
    Rule{"fp8-recipe", "blockwise", carried, "precision.products", "fp8"},
    Rule{"fp8*", "", refused, "precision.products = \"fp8\" rounds in blocks, as fp8-recipe blockwise does"},
    Rule{"first-last-layers-bf16", "", without_effect, "no products are in fp8"},
    Rule{"num-layers-at-start-in-bf16", "", without_effect, "no layers are left out of fp8"},
    Rule{"num-layers-at-end-in-bf16", "", without_effect, "no layers are left out of fp8"},
    Rule{"fp4*", "", refused, eight_bits},
    Rule{"loss-scale*", "", without_effect, "nothing is scaled, or not in that way"},
    Rule{"initial-loss-scale", "", without_effect, "nothing is scaled, or not in that way"},
    Rule{"min-loss-scale", "", without_effect, "nothing is scaled, or not in that way"},
    Rule{"hysteresis", "", without_effect, "nothing is scaled, or not in that way"},
    Rule{"calculate-per-token-loss", "", without_effect, "the loss is the mean over all tokens of a step"},
    Rule{"init-method-std", "0.02|.02", without_effect, "as here"},
    Rule{"init-method-std", "", refused, initial},
    Rule{"init-method-xavier-uniform", "", refused, initial},
    Rule{"no-query-key-layer-scaling", "", without_effect, "as here"},
    Rule{"apply-query-key-layer-scaling", "", without_effect, "scores are in fp32"},
    Rule{"decoupled-*", "", refused, "lr_scale of [[optimizer.group]] is a factor for parameters by name"},
    Rule{"start-weight-decay", "", refused, "weight decay is the same in every step"},
    Rule{"end-weight-decay", "", refused, "weight decay is the same in every step"},
    Rule{"weight-decay-incr-style", "constant", without_effect, "as here"},
    Rule{"weight-decay-incr-style", "", refused, "weight decay is the same in every step"},
    Rule{"lr-warmup-init", "0|0.0", without_effect, "as here"},
    Rule{"lr-warmup-init", "", refused, "the learning rate rises from 0"},
    Rule{"lr-wsd-*", "", refused, "the schedules are constant, linear and cosine"},
    Rule{"use-precision-aware-optimizer", "", refused,
         "precision.master and precision.moments say how state is kept"},
    Rule{"exp-avg*-dtype", "", refused, "precision.moments takes fp32, bf16 or fp64"},
    Rule{"main-*-dtype", "", refused, "precision.master and precision.gradient say how state is kept"},
    Rule{"optimizer-cpu-offload", on, carried, "strategy.offload.optimizer", "host"},
    Rule{"optimizer-offload-fraction", "1|1.0", without_effect, "as here"},
    Rule{"optimizer-offload-fraction", "", refused,
         "a share is said as optimizer = \"host:30, device:70\" of the strategy offload"},
    Rule{"cpu-optimizer", on, carried, "strategy.offload.optimizer", "host"},
    Rule{"*pin*cpu*", "", without_effect, "what is copied is always pinned"},
    // These are of shape and layout.
    Rule{"group-query-attention", "", without_effect, "follows from num-query-groups"},
    Rule{"no-position-embedding", "", without_effect, "position-embedding-type says it"},
    Rule{"no-bias-swiglu-fusion", "", without_effect, kernels},
    Rule{"rotary-percent", "1|1.0", without_effect, "as here"},
    Rule{"rotary-percent", "", refused, "every pair turns"},
    Rule{"rotary-seq-len-interpolation-factor", "1", without_effect, "as here"},
    Rule{"rotary-seq-len-interpolation-factor", "", refused, "positions are not interpolated"},
    Rule{"apply-layernorm-1p", "", refused, "a norm's gain is not counted from 1"},
    Rule{"qk-layernorm", "", refused, "queries and keys are not normed"},
    Rule{"position-embedding-type", "learned_absolute|absolute", without_effect, "as here"},
    Rule{"position-embedding-type", "", refused,
         "positions are learned (gpt) or turn queries and keys (llama)"},
    Rule{"normalization", "LayerNorm", without_effect, "as here"},
    Rule{"make-vocab-size-divisible-by", "", without_effect, "follows in model.vocab"},
    Rule{"context-parallel-size", "1", without_effect, "as here"},
    Rule{"ds-sequence-parallel-size", "1", without_effect, "as here"},
    Rule{"cp-comm-type", "", without_effect, "keys and values are gathered in front of attention"},
    Rule{"hierarchical-context-parallel-sizes", "", without_effect,
         "keys and values are gathered in front of attention"},
    Rule{"encoder-*-parallel-size", "0", without_effect, "as here"},
    Rule{"mtp-num-layers", "0", without_effect, "as here"},
    Rule{"mtp-loss-scaling-factor", "", without_effect, "there are no further tokens to predict"},
    Rule{"num-experts", "1", without_effect, "as here"},
    Rule{"expert-model-parallel-size", "1", without_effect, "as here"},
    Rule{"expert-*", "", refused, experts},
    Rule{"moe-*", "", refused, experts},
    Rule{"sequence-parallel", on, without_effect, "one rank along tp has nothing to split"},
    Rule{"recompute-granularity", "selective", without_effect, "attention never keeps its matrix"},
    Rule{"recompute-activations", on, without_effect, "attention never keeps its matrix"},
    Rule{"recompute-num-layers", "", refused,
         "every layer is recomputed, or as many as fit with mode = \"budget\""},
    Rule{"recompute-method", "uniform", without_effect, "every layer is recomputed by itself"},
    Rule{"recompute-method", "", refused,
         "every layer is recomputed, or as many as fit with mode = \"budget\""},
    Rule{"recompute-modules", "", refused,
         "[[strategy]] plugin = \"recompute\" with mode = \"selective\" names ops"},
    Rule{"no-pipeline-parallel", "", without_effect, "one rank along pp has no stages"},
    Rule{"deepspeed", "", without_effect, "its options are this recipe's"},
    Rule{"deepspeed-activation-checkpointing", "", without_effect, "its options are this recipe's"},
    Rule{"deepspeed-config", "", refused, "a configuration of its own, which prun convert reads as well"},
};

// Is a setting with which the model would be another one.
struct Foreign {
  const char* key;
  const char* same;  // changes nothing
};
constexpr std::array foreign = {
    Foreign{"multi-latent-attention", "off"}, Foreign{"spec", "off"},
    Foreign{"hybrid-layer-pattern", "off"},   Foreign{"encoder-num-layers", "0"},
    Foreign{"squared-relu", "off"},           Foreign{"bert-no-binary-head", "off"}};

// ------------------------------------------------------------------- reading

bool is_number(std::string_view word) {
  return recipe::parse_value(recipe::OptionType::real, word).has_value();
}

// Returns "num-layers" for "--num_layers", as argparse does; "-N 4" is not read.
std::string key_of(std::string_view word) {
  std::string key(word.substr(2));
  if (key != "DDP-impl")
    for (char& c : key)
      if (c == '_') c = '-';
  return key;
}

bool names_option(std::string_view word) { return word.starts_with("--") && word.size() > 2; }

void read_options(Transfer& transfer, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!names_option(words[i])) continue;
    std::string word = words[i], value;
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    while (i + 1 < words.size() && !names_option(words[i + 1]) &&
           (words[i + 1][0] != '-' || is_number(words[i + 1])))
      value += (value.empty() ? "" : " ") + words[++i];
    transfer.add(key_of(word), value.empty() ? on : value);
  }
}

// Leaves open what a script chooses as it runs: by name, once.
void leave_open(Transfer& transfer, const std::vector<std::string>& branched) {
  for (const std::string& word : branched)
    if (const std::string key = names_option(word) ? key_of(word) : "";
        !key.empty() && !transfer.has(key) && !transfer.is_left_open(key)) {
      transfer.add(key, "…");
      transfer.leave_open(key, "it stands in a branch of the script, which is not run");
    }
  for (const Setting& setting : transfer.settings())
    if (left_open(setting.text)) transfer.leave_open(setting.key, "a run of the script would say it");
}

bool flag(const Transfer& transfer, std::string_view key) { return transfer.is(key, on); }

void convert_flag(Transfer& transfer, std::string_view key, std::string_view to, bool value) {
  transfer.set(to, value, flag(transfer, key) ? std::string(key) : detail::concat("no ", key));
  transfer.carried(key);
}

// ------------------------------------------------------------------- parts

// The schemas refuse numbers that are beyond any count.
std::int64_t whole(double number) { return static_cast<std::int64_t>(std::clamp(number, -9e15, 9e15)); }

// Beyond these limits no ramp is followed.
constexpr std::int64_t most_samples = 10'000'000'000'000, most_sizes = 100'000;

// Returns start, increment and samples, in the units of the source.
std::optional<std::array<std::int64_t, 3>> given_ramp(const Transfer& transfer) {
  std::array<std::int64_t, 3> numbers{};
  std::istringstream words(transfer.text("rampup-batch-size"));
  for (std::int64_t& number : numbers)
    if (!(words >> number) || number < 1 || number > most_samples) return {};
  return numbers;
}

// Returns how its steps grow, if they do.
BatchRamp ramp_of(const Transfer& transfer, std::int64_t global) {
  const auto said = given_ramp(transfer);
  if (!said || (*said)[0] >= global || (global - (*said)[0]) / (*said)[1] > most_sizes)
    return BatchRamp::even(global, 1, 1, global);
  return BatchRamp::even((*said)[0], (*said)[1], (*said)[2], global);
}

// Returns the steps of an option in iterations or in samples, by the batch that each step has.
std::optional<std::int64_t> steps_of(Transfer& transfer, const std::string& iterations,
                                     const std::string& samples) {
  if (transfer.has(iterations)) {
    transfer.carried(iterations);
    return transfer.integer(iterations, 0);
  }
  const auto batch = transfer.number("global-batch-size");
  if (!transfer.has(samples) || !batch || *batch < 1) return {};
  transfer.carried(samples);
  return ramp_of(transfer, whole(*batch)).steps_for(whole(*transfer.number(samples)));
}

// Converts a setting that says how the model is built: it is carried over where prun's is built so too.
void differs(Transfer& transfer, bool there_too, const char* key, const char* value, const char* why) {
  if (there_too)
    transfer.has(key) ? transfer.carried(key) : void();
  else if (transfer.has(key))
    transfer.refuse(key, why);
  else
    transfer.refuse_default(key, value, why);
}

bool has_rope(Transfer& transfer) {
  return transfer.is("position-embedding-type", "rope") || flag(transfer, "use-rotary-position-embeddings");
}

void convert_sizes(Transfer& transfer) {
  transfer.take("num-layers", "model.layers");
  transfer.take("hidden-size", "model.hidden");
  transfer.take("num-attention-heads", "model.heads");
  transfer.take("seq-length", "model.seq");
  transfer.take(transfer.has("max-absolute-position-embeddings") ? "max-absolute-position-embeddings"
                                                                 : "max-position-embeddings",
                "model.positions");
  transfer.take("ffn-hidden-size", "model.ffn");
  const char* const eps = transfer.has("layernorm-epsilon") ? "layernorm-epsilon" : "norm-epsilon";
  transfer.take(eps, "model.norm_eps", "1e-5");
  convert_flag(transfer, "untie-embeddings-and-output-weights", "model.tied",
               !flag(transfer, "untie-embeddings-and-output-weights"));
}

void convert_llama_sizes(Transfer& transfer) {
  if (flag(transfer, "group-query-attention") || transfer.has("num-query-groups"))
    transfer.take("num-query-groups", "model.kv_heads", "1");
  transfer.take("kv-channels", "model.head_dim");
  transfer.take("rotary-base", "model.rope_base", "10000");
  convert_flag(transfer, "add-qkv-bias", "model.qkv_bias", flag(transfer, "add-qkv-bias"));
  if (flag(transfer, "use-rope-scaling")) {
    transfer.take("rope-scaling-factor", "model.rope_factor", "8");
    transfer.carried("use-rope-scaling");
  }
  const double hidden = transfer.number("hidden-size").value_or(0);
  if (!transfer.has("ffn-hidden-size") && hidden > 0 && flag(transfer, "swiglu"))
    transfer.set("model.ffn", whole(4 * hidden * 2 / 3) / 64 * 64,
                 "default of Megatron-LM's ffn-hidden-size with swiglu");
}

bool predicts_further(const Transfer& transfer) {
  return transfer.has("mtp-num-layers") && !transfer.is("mtp-num-layers", "0");
}

void convert_llama(Transfer& transfer) {
  convert_llama_sizes(transfer);
  if (predicts_further(transfer)) {
    transfer.take("mtp-num-layers", "model.mtp_layers");
    transfer.take("mtp-loss-scaling-factor", "model.mtp_loss", "0.1");
  }
  differs(transfer, flag(transfer, "swiglu"), "swiglu", "off", "the MLP of llama is SwiGLU");
  differs(transfer, has_rope(transfer), "position-embedding-type", "learned_absolute",
          "llama turns queries and keys by their positions");
  differs(transfer, transfer.is("normalization", "RMSNorm"), "normalization", "LayerNorm",
          "llama norms by RMSNorm");
  differs(transfer, flag(transfer, "disable-bias-linear"), "disable-bias-linear", "off",
          "llama's products have no bias, but for qkv_bias");
  if (flag(transfer, "use-rotary-position-embeddings")) transfer.carried("use-rotary-position-embeddings");
  if (transfer.number("hidden-dropout").value_or(0.1) > 0)
    differs(transfer, false, "hidden-dropout", "0.1", "llama has no dropout");
  else
    transfer.without_effect("hidden-dropout", "as here");
}

void convert_gpt(Transfer& transfer) {
  const double hidden = transfer.number("hidden-size").value_or(0),
               heads = transfer.number("num-attention-heads").value_or(1);
  transfer.take("hidden-dropout", "model.dropout", "0.1");
  if (predicts_further(transfer)) transfer.refuse("mtp-num-layers", "gpt predicts the next token alone");
  if (flag(transfer, "disable-bias-linear"))
    transfer.refuse("disable-bias-linear", "gpt's products have biases");
  if (transfer.has("kv-channels") && transfer.number("kv-channels") != hidden / heads)
    transfer.refuse("kv-channels", "a head of gpt is hidden / heads wide");
  else
    transfer.without_effect("kv-channels", "follows from hidden and heads");
  if (flag(transfer, "group-query-attention"))
    transfer.refuse("group-query-attention", "gpt has as many key and value heads as heads");
}

void convert_model(Transfer& transfer) {
  const bool llama =
      flag(transfer, "swiglu") || has_rope(transfer) || transfer.is("normalization", "RMSNorm");
  transfer.set_text("model.plugin", llama ? "llama" : "gpt",
                    llama ? (flag(transfer, "swiglu") ? "swiglu" : "normalization and positions")
                          : "learned positions and gelu");
  convert_sizes(transfer);
  llama ? convert_llama(transfer) : convert_gpt(transfer);
  if (transfer.number("attention-dropout").value_or(0.1) > 0)
    differs(transfer, false, "attention-dropout", "0.1", "attention has no dropout");
  else
    transfer.without_effect("attention-dropout", "as here");
}

// Pads the rows of the table to a multiple.
void convert_vocabulary(Transfer& transfer, std::int64_t tensor) {
  const std::int64_t multiple =
      std::max<std::int64_t>(1, product({transfer.integer("make-vocab-size-divisible-by", 128), tensor}));
  transfer.pad_vocabulary(multiple);
  if (!transfer.has("vocab-size")) return;
  transfer.set("model.vocab", transfer.padded(transfer.integer("vocab-size", 1)),
               detail::concat("vocab-size, padded to a multiple of ", multiple));
  transfer.carried("vocab-size");
}

std::optional<std::int64_t> ranks_of_launcher(Transfer& transfer) {
  const auto count = [&](std::initializer_list<const char*> keys) -> std::optional<std::int64_t> {
    for (const char* key : keys)
      if (transfer.has(key) && is_number(transfer.text(key))) {
        transfer.carried(key);
        return transfer.integer(key, 1);
      }
    return {};
  };
  const auto ranks = count({"nproc-per-node", "num-gpus"});
  const auto nodes = count({"nnodes", "num-nodes"});
  if (!ranks) return {};
  return product({*ranks, nodes.value_or(1)});
}

Axes convert_axes(Transfer& transfer) {
  Axes axes;
  axes.tensor_origin =
      transfer.has("model-parallel-size") ? "model-parallel-size" : "tensor-model-parallel-size";
  axes.pipeline_origin = "pipeline-model-parallel-size";
  axes.tensor = transfer.integer(axes.tensor_origin, 1);
  axes.pipeline = transfer.integer(axes.pipeline_origin, 1);
  if (axes.tensor < 1 || axes.pipeline < 1)
    throw_error(ErrorCode::bad_input, "parallel sizes are counts from 1 on");
  transfer.carried(axes.tensor_origin);
  transfer.carried(axes.pipeline_origin);
  read_sequence(transfer, {"context-parallel-size", "ds-sequence-parallel-size"}, axes);
  axes.data = data_ranks(transfer, ranks_of_launcher(transfer), axes).value_or(1);
  axes.data_origin = data_origin(transfer.given().ranks ? "--ranks" : "ranks of the launcher", axes);
  return axes;
}

void convert_layout(Transfer& transfer, const Axes& axes) {
  write_axes(transfer, axes);
  if (axes.tensor > 1 && flag(transfer, "sequence-parallel")) {
    transfer.set("strategy.tensor.sequence", true, "sequence-parallel");
    transfer.carried("sequence-parallel");
  }
  const std::int64_t layers = transfer.integer("num-layers", 0);
  const std::int64_t virtual_layers = transfer.integer("num-layers-per-virtual-pipeline-stage", 0);
  std::int64_t chunks = transfer.integer("num-virtual-stages-per-pipeline-rank", 1);
  if (virtual_layers > 0) chunks = layers / axes.pipeline / virtual_layers;
  for (const char* key : {"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"})
    if (transfer.has(key) && axes.pipeline > 1)
      transfer.carried(key);
    else
      transfer.without_effect(key, "one rank along pp has no stages");
  if (axes.pipeline > 1) {
    transfer.set_text("strategy.pipeline.schedule", chunks > 1 ? "interleaved" : "1f1b",
                      axes.pipeline_origin);
    if (chunks > 1) transfer.set("strategy.pipeline.chunks", chunks, "virtual stages of a rank");
  }
  const std::string sharding = transfer.text("data-parallel-sharding-strategy");
  std::int64_t stage = flag(transfer, "use-distributed-optimizer") ? 1 : 0;
  if (sharding == "optim_grads") stage = 2;
  if (sharding == "optim_grads_params" || flag(transfer, "use-torch-fsdp2")) stage = 3;
  stage = std::max(stage, transfer.integer("zero-stage", 0));
  for (const char* key : {"use-distributed-optimizer", "data-parallel-sharding-strategy", "use-torch-fsdp2",
                          "use-custom-fsdp", "use-megatron-fsdp", "zero-stage"})
    if (axes.data > 1)
      transfer.carried(key);
    else
      transfer.without_effect(key, "one rank shares nothing out");
  write_zero(transfer, axes, stage, stage == 1 ? "use-distributed-optimizer" : "how parameters are sharded");
  for (const char* key : {"checkpoint-activations", "recompute-granularity"})
    if (transfer.is(key, on) || transfer.is(key, "full")) {
      transfer.set_text("strategy.recompute.mode", "full", key);
      transfer.carried(key);
    }
}

void convert_adam(Transfer& transfer) {
  const double first = transfer.number("adam-beta1").value_or(0.9),
               second = transfer.number("adam-beta2").value_or(0.999);
  transfer.set(
      "optimizer.betas", std::vector{first, second},
      transfer.has("adam-beta2") ? "adam-beta1, adam-beta2" : "adam-beta1 and Megatron-LM's default 0.999");
  transfer.carried("adam-beta1");
  transfer.carried("adam-beta2");
  transfer.take("adam-eps", "optimizer.eps", "1e-8");
}

void convert_optimizer(Transfer& transfer) {
  const std::string optimizer = transfer.text("optimizer", "adam");
  if (optimizer != "adam" && optimizer != "sgd") {
    transfer.refuse("optimizer", "the optimizers are adamw and sgd; others are plugins");
    return;
  }
  transfer.set_text("optimizer.plugin", optimizer == "adam" ? "adamw" : "sgd",
                    transfer.has("optimizer") ? "optimizer" : "default of Megatron-LM's optimizer");
  transfer.carried("optimizer");
  transfer.take("weight-decay", "optimizer.weight_decay", "0.01");
  if (optimizer == "adam")
    convert_adam(transfer);
  else
    transfer.take("sgd-momentum", "optimizer.momentum", "0.9");
}

void convert_decay_style(Transfer& transfer) {
  const std::string style = transfer.text("lr-decay-style", "linear");
  if (style == "constant" || style == "linear" || style == "cosine") {
    transfer.take("lr-decay-style", "optimizer.schedule.kind", "linear");
  } else if (style == "inverse-square-root") {
    transfer.set_text("optimizer.schedule.kind", "inverse-sqrt", "lr-decay-style");
    transfer.carried("lr-decay-style");
  } else {
    transfer.refuse("lr-decay-style",
                    "its kind and when it begins to fall are set by hand: kind = \"wsd\", decay, shape");
  }
}

// `steps` are those of the run, where they are known.
void convert_rates(Transfer& transfer, const std::optional<std::int64_t>& steps) {
  transfer.take("lr", "optimizer.lr");
  transfer.take("clip-grad", "optimizer.clip", "1.0");
  convert_decay_style(transfer);
  const auto decay = steps_of(transfer, "lr-decay-iters", "lr-decay-samples");
  if (decay) transfer.set("optimizer.schedule.steps", *decay, "lr-decay-iters or -samples");
  if (const auto lr = transfer.number("lr"), least = transfer.number("min-lr"); lr && *lr > 0 && least) {
    transfer.set("optimizer.schedule.final", *least / *lr, "min-lr / lr");
    transfer.carried("min-lr");
  }
  auto warmup = steps_of(transfer, "lr-warmup-iters", "lr-warmup-samples");
  const auto horizon = decay ? decay : steps;
  if (const auto fraction = transfer.number("lr-warmup-fraction"); fraction && horizon) {
    warmup = whole(*fraction * static_cast<double>(*horizon));
    transfer.carried("lr-warmup-fraction");
  }
  if (warmup) transfer.set("optimizer.schedule.warmup", *warmup, "lr-warmup");
}

void convert_ramp(Transfer& transfer) {
  constexpr const char* key = "rampup-batch-size";
  if (!transfer.has(key)) return;
  const auto said = given_ramp(transfer);
  if (!said) {
    transfer.refuse(key, "start, increment and samples are three counts");
    return;
  }
  transfer.set("batch.ramp.start", (*said)[0], key);
  transfer.set("batch.ramp.increment", (*said)[1], key);
  transfer.set("batch.ramp.samples", (*said)[2], key);
  transfer.carried(key);
}

void convert_training(Transfer& transfer) {
  transfer.take("micro-batch-size", "batch.micro");
  transfer.take("global-batch-size", "batch.global");
  convert_ramp(transfer);
  transfer.take("seed", "run.seed", "1234");
  transfer.take("save-interval", "run.save_every");
  if (transfer.has("distributed-timeout-minutes")) {
    transfer.set("run.hang_limit", product({60, transfer.integer("distributed-timeout-minutes", 10)}),
                 "distributed-timeout-minutes x 60");
    transfer.carried("distributed-timeout-minutes");
  }
  if (transfer.has("save")) {
    transfer.set_text("run.out", transfer.text("save"), "save");
    transfer.carried("save");
  }
  const auto steps = steps_of(transfer, "train-iters", "train-samples");
  if (steps)
    transfer.set("run.steps", *steps,
                 transfer.has("train-iters") ? "train-iters" : "train-samples / global-batch-size");
  convert_optimizer(transfer);
  convert_rates(transfer, steps);
}

void convert_loss_scale(Transfer& transfer) {
  transfer.set_text("precision.compute", "fp16", "fp16");
  transfer.carried("fp16");
  if (transfer.has("loss-scale")) {
    transfer.set_text("loss_scale.rule", "static", "loss-scale");
    transfer.take("loss-scale", "loss_scale.initial");
    return;
  }
  transfer.set_text("loss_scale.rule", "megatron", "fp16");
  transfer.take("initial-loss-scale", "loss_scale.initial");
  transfer.take("min-loss-scale", "loss_scale.least");
  transfer.take("loss-scale-window", "loss_scale.window");
  transfer.take("hysteresis", "loss_scale.hysteresis");
}

// Its defaults are one layer at either end.
void convert_layers_in_bf16(Transfer& transfer) {
  if (!flag(transfer, "first-last-layers-bf16") || !transfer.is("fp8-recipe", "blockwise")) return;
  transfer.carried("first-last-layers-bf16");
  transfer.take("num-layers-at-start-in-bf16", "precision.first_in_compute", "1");
  transfer.take("num-layers-at-end-in-bf16", "precision.last_in_compute", "1");
}

void convert_precision(Transfer& transfer) {
  convert_layers_in_bf16(transfer);
  if (flag(transfer, "fp16")) {
    convert_loss_scale(transfer);
  } else if (flag(transfer, "bf16")) {
    transfer.set_text("precision.compute", "bf16", "bf16");
    transfer.carried("bf16");
  }
}

// Reads "0.2 A 0.3 B", or one prefix.
void convert_data(Transfer& transfer) {
  if (!transfer.has("data-path")) return;
  const std::string path = transfer.text("data-path");
  std::vector<std::string> words;
  for (const std::string_view word : split(path, ' '))
    if (!word.empty()) words.emplace_back(word);
  const bool weighted = words.size() > 1 && is_number(words[0]);
  const std::size_t step = weighted ? 2 : 1;
  if (words.size() % step != 0) throw_error(ErrorCode::bad_input, "data-path has a weight without a prefix");
  for (std::size_t i = 0; i < words.size(); i += step) {
    const std::string at = i == 0 ? "data." : detail::concat("data.blend.", 1000 + i, ".");
    transfer.set_text(at + "plugin", "tokens", "data-path");
    transfer.set_text(at + "path", words[i + step - 1], "data-path");
    if (weighted) transfer.set(at + "weight", value_of(words[i]), "data-path");
  }
  transfer.carried("data-path");
}

// Reads samples for validation and for a test, which is not trained on either.
void convert_validation(Transfer& transfer) {
  if (transfer.is_left_open("split")) return;
  const std::string parts = transfer.text("split", "969,30,1");
  std::vector<double> shares;
  for (const std::string_view part : split(parts, ','))
    if (const auto share = recipe::parse_value(recipe::OptionType::real, part))
      shares.push_back(std::get<double>(*share));
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (shares.empty() || all <= 0 || shares[0] / all < 0.5) {
    transfer.refuse("split", "data.validation is at most half");
    return;
  }
  const double kept = 1 - shares[0] / all;
  transfer.set("data.validation", std::round(kept * 1e9) / 1e9,
               transfer.has("split") ? "split, all but the first share" : "default of Megatron-LM's split");
  transfer.carried("split");
  const bool evaluates = kept > 0 && transfer.number("eval-iters").value_or(100) > 0;
  for (const char* key : {"eval-interval", "eval-iters"})
    if (!evaluates) transfer.without_effect(key, "nothing is kept to validate on");
  if (!evaluates) return;
  transfer.take("eval-interval", "eval.every", "1000");
  transfer.take("eval-iters", "eval.batches", "100");
}

bool has_experts(const Transfer& transfer) {
  if (!transfer.has("num-experts") || transfer.is("num-experts", "1")) return false;
  if (!flag(transfer, "swiglu"))
    throw_error(ErrorCode::unsupported, "--num-experts ", printable(transfer.text("num-experts"), 60),
                " without --swiglu: the MLPs of experts are SwiGLU");
  return true;
}

void convert_observers(Transfer& transfer) {
  transfer.take("log-interval", "observer.console.every", "100");
  if (transfer.is_left_open("tensorboard-dir"))
    transfer.set_plugin("observer.tensorboard", "tensorboard-dir");
  else if (transfer.has("tensorboard-dir"))
    transfer.set_text("observer.tensorboard.path", transfer.text("tensorboard-dir"), "tensorboard-dir"),
        transfer.carried("tensorboard-dir");
}

}  // namespace

void convert_megatron(Transfer& transfer, const ShellCommand& command) {
  read_options(transfer, command.launcher);
  read_options(transfer, command.arguments);
  leave_open(transfer, command.branched);
  for (const Foreign& each : foreign)
    if (transfer.has(each.key) && !transfer.is(each.key, each.same))
      throw_error(ErrorCode::unsupported, "--", each.key, " ", printable(transfer.text(each.key), 60), ": ",
                  other_model);
  convert_model(transfer);
  const Axes axes = convert_axes(transfer);
  convert_vocabulary(transfer, axes.tensor);
  convert_layout(transfer, axes);
  if (has_experts(transfer)) convert_experts(transfer, axes);
  convert_training(transfer);
  convert_precision(transfer);
  convert_data(transfer);
  convert_validation(transfer);
  convert_observers(transfer);
  transfer.apply(rules);
}

}  // namespace prun::convert
