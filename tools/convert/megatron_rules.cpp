// Lists arguments of Megatron-LM that prun needs not, has not, or has under another name.
#include "convert/megatron_rules.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "convert/layout.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun::convert::megatron {
namespace {

// ------------------------------------------------------------------- megatron rules

constexpr Fate carried = Fate::carried, refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* reads_tokens = "training reads tokens; prun tokenize makes them";
constexpr const char* planned = "the plan orders exchanges and computation";
constexpr const char* kernels = "the device plugin chooses kernels";
constexpr const char* profiles = "prun plan, prun trace and prun report say where time and memory go";
constexpr const char* starts = "a checkpoint of prun: prun RECIPE --set run.resume=CKPT";
constexpr const char* rendezvous = "ranks are started by prun, srun, mpirun or torchrun (docs/clusters.md)";
constexpr const char* eight_bits =
    "strategy fp8 multiplies in e4m3, with a scale for each block of 128 (docs/precision.md)";
constexpr const char* checkpoints =
    "checkpoints are whole, checked, written beside training, and go on in any layout";
constexpr const char* experts = "the model has no experts";
constexpr const char* initial = "initial values are normal with model.init_std";

constexpr std::array all_rules = {
    // These are of launchers.
    Rule{"master*", "", without_effect, rendezvous},
    Rule{"node-rank", "", without_effect, rendezvous},
    Rule{"rdzv*", "", without_effect, rendezvous},
    Rule{"hostfile", "", without_effect, rendezvous},
    Rule{"force-multi", "", without_effect, rendezvous},
    Rule{"distributed-backend", "", without_effect, "[comm] default = \"auto\" is nccl on GPUs"},
    Rule{"local-rank", "", without_effect, rendezvous},
    // These are of data and tokens.
    Rule{"vocab-file", "", without_effect, reads_tokens},
    Rule{"merge-file", "", without_effect, reads_tokens},
    Rule{"tokenizer-*", "", without_effect, reads_tokens},
    Rule{"tiktoken-*", "", without_effect, reads_tokens},
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
    Rule{"reset-attention-mask", "", refused, "data.mask_documents = true, which needs data.end_of_text"},
    Rule{"reset-position-ids", "", refused, "positions count on over documents"},
    Rule{"eod-mask-loss", "", refused, "data.mask_documents = true, which needs data.end_of_text"},
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
    Rule{"fp8-recipe", "blockwise", carried, "strategy.fp8."},
    Rule{"fp8*", "", refused, "strategy fp8 rounds in blocks, as fp8-recipe blockwise does"},
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
    Rule{"init-method-std", "", carried, "model.init_std"},
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

}  // namespace

std::span<const Rule> rules() { return all_rules; }

namespace {

// ------------------------------------------------------------------- megatron training
// Carries over Megatron-LM's arguments of batch, optimizer, learning rate and number formats. Where they are
// given in samples, steps follow by the batch that each step has.

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

// Returns the steps that a number of samples takes, by the batch that each step has.
std::optional<std::int64_t> steps_for(const Transfer& transfer, double samples) {
  const auto batch = transfer.number("global-batch-size");
  if (!batch || *batch < 1) return {};
  return ramp_of(transfer, whole(*batch)).steps_for(whole(samples));
}

// Returns the steps of an option in tokens, which Megatron-DeepSpeed has.
std::optional<std::int64_t> steps_of_tokens(Transfer& transfer, const std::string& tokens) {
  if (!transfer.has(tokens)) return {};
  const auto seq = transfer.number("seq-length");
  const auto steps =
      seq && *seq >= 1 ? steps_for(transfer, *transfer.number(tokens) / *seq) : std::optional<std::int64_t>();
  if (steps)
    transfer.carried(tokens);
  else
    transfer.refuse(tokens, "its steps follow from seq-length and global-batch-size, and one is not given");
  return steps;
}

// Returns the steps of an option in iterations, in samples or in tokens: what is given as NAME-iters,
// NAME-samples or NAME-tokens. Of a number of tokens beside one of the others the fewer steps count, as
// there.
std::optional<std::int64_t> steps_of(Transfer& transfer, const std::string& name) {
  const std::string iterations = name + "-iters", samples = name + "-samples";
  std::optional<std::int64_t> steps;
  if (transfer.has(iterations)) {
    transfer.carried(iterations);
    steps = transfer.integer(iterations, 0);
  } else if (transfer.has(samples)) {
    steps = steps_for(transfer, *transfer.number(samples));
    if (steps) transfer.carried(samples);
  }
  const auto by_tokens = steps_of_tokens(transfer, name + "-tokens");
  return steps && by_tokens ? std::min(steps, by_tokens) : by_tokens ? by_tokens : steps;
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
  const auto decay = steps_of(transfer, "lr-decay");
  if (decay) transfer.set("optimizer.schedule.steps", *decay, "lr-decay");
  if (const auto lr = transfer.number("lr"), least = transfer.number("min-lr"); lr && *lr > 0 && least) {
    transfer.set("optimizer.schedule.final", *least / *lr, "min-lr / lr");
    transfer.carried("min-lr");
  }
  auto warmup = steps_of(transfer, "lr-warmup");
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
  transfer.take("num-layers-at-start-in-bf16", "strategy.fp8.first_in_compute", "1");
  transfer.take("num-layers-at-end-in-bf16", "strategy.fp8.last_in_compute", "1");
}

}  // namespace

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
  const auto steps = steps_of(transfer, "train");
  if (steps)
    transfer.set("run.steps", *steps,
                 transfer.has("train-tokens")  ? "train-tokens / (seq-length x global-batch-size), or fewer"
                 : transfer.has("train-iters") ? "train-iters"
                                               : "train-samples / global-batch-size");
  convert_optimizer(transfer);
  convert_rates(transfer, steps);
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

}  // namespace prun::convert::megatron
