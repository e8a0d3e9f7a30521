// Converts a train_config of torchtitan.
#include <array>
#include <string>

#include "convert/layout.hpp"
#include "convert/transfer.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
namespace {

// ------------------------------------------------------------------- torchtitan models
// Knows the models of torchtitan, whose shapes are in its code under the names of flavors, and which ranks
// have the experts of one.

// Converts which ranks have the experts; for a model without any, or an unknown one, --set states all.
void convert_torchtitan_experts(Transfer& transfer, const Axes& axes);

// Its debugmodel has had several versions.
struct Flavor {
  const char *model, *name;
  int layers, hidden, heads, kv_heads, ffn, vocab;
  double rope_base;
  bool tied = false;
  int experts = 0, choices = 0, expert_ffn = 0;
};
constexpr double turns = 500000, qwen_turns = 1000000;
constexpr int words = 128256, qwen_words = 151936;
constexpr std::array flavors = {
    Flavor{"llama3", "8B", 32, 4096, 32, 8, 14336, words, turns},
    Flavor{"llama3", "70B", 80, 8192, 64, 8, 28672, words, turns},
    Flavor{"llama3", "405B", 126, 16384, 128, 8, 53248, words, turns},
    Flavor{"qwen3", "0.6B", 28, 1024, 16, 8, 3072, qwen_words, qwen_turns, true},
    Flavor{"qwen3", "1.7B", 28, 2048, 16, 8, 6144, qwen_words, qwen_turns, true},
    Flavor{"qwen3", "4B", 36, 2560, 32, 8, 9728, qwen_words, qwen_turns, true},
    Flavor{"qwen3", "8B", 36, 4096, 32, 8, 12288, qwen_words, qwen_turns},
    Flavor{"qwen3", "14B", 40, 5120, 40, 8, 17408, qwen_words, qwen_turns},
    Flavor{"qwen3", "32B", 64, 5120, 64, 8, 25600, qwen_words, qwen_turns},
    Flavor{"qwen3", "30B-A3B", 48, 2048, 32, 4, 6144, qwen_words, qwen_turns, false, 128, 8, 768},
    Flavor{"qwen3", "235B-A22B", 94, 4096, 64, 4, 12288, qwen_words, qwen_turns, false, 128, 8, 1536},
};

// Writes norms on queries and keys, and heads of 128 whatever the width.
void write_qwen(Transfer& transfer, const Flavor& flavor, const std::string& origin) {
  transfer.set_text("model.family", flavor.experts > 0 ? "qwen3_moe" : "qwen3", origin);
  transfer.set("model.head_dim", 128, origin);
  transfer.set("model.norm_eps", 1e-6, origin);
  transfer.set("model.tied", flavor.tied, origin);
  if (flavor.experts == 0) return;
  transfer.set("model.experts", flavor.experts, origin);
  transfer.set("model.choices", flavor.choices, origin);
  transfer.set("model.expert_ffn", flavor.expert_ffn, origin);
  transfer.set("model.router_normalise", true, origin);
  // This is its load_balance_coeff. torchtitan subtracts the mean of all biases' moves, which changes no
  // choice.
  transfer.set("model.router_bias", true, origin);
  transfer.set("model.router_bias_rate", 1e-3, origin);
}

void write_shape(Transfer& transfer, const Flavor& flavor) {
  const std::string origin = detail::concat("torchtitan's ", flavor.model, " ", flavor.name);
  transfer.set("model.layers", flavor.layers, origin);
  transfer.set("model.hidden", flavor.hidden, origin);
  transfer.set("model.heads", flavor.heads, origin);
  transfer.set("model.kv_heads", flavor.kv_heads, origin);
  transfer.set("model.ffn", flavor.ffn, origin);
  transfer.set("model.vocab", flavor.vocab, origin);
  transfer.set("model.rope_base", flavor.rope_base, origin);
  if (std::string_view(flavor.model) == "qwen3") write_qwen(transfer, flavor, origin);
}

const Flavor* flavor_of(const Transfer& transfer) {
  for (const Flavor& known : flavors)
    if (transfer.text("model.name", "llama3") == known.model &&
        transfer.text("model.flavor", "debugmodel") == known.name)
      return &known;
  return nullptr;
}

// Converts model.name and model.flavor.
void convert_torchtitan_model(Transfer& transfer) {
  const std::string name = transfer.text("model.name", "llama3");
  if (name != "llama3" && name != "llama2" && name != "llama" && name != "qwen3") {
    transfer.refuse("model.name", "the models are gpt and llama with its families; others are plugins");
    transfer.refuse("model.flavor", "a shape of a model that there is not");
    return;
  }
  transfer.carried("model.name");
  transfer.set_text("model.plugin", "llama", "model.name");
  if (const Flavor* const known = flavor_of(transfer)) {
    write_shape(transfer, *known);
    transfer.carried("model.flavor");
    return;
  }
  if (name == "qwen3" && !transfer.knows("model.family"))
    transfer.ask("--set model.family=qwen3", "or qwen3_moe, with its experts");
  transfer.refuse("model.flavor", "the shape is asked for, where its code there has it");
}

// Beside tensor parallelism, experts there are whole unless expert_tensor_parallel_degree says otherwise.
void convert_torchtitan_experts(Transfer& transfer, const Axes& axes) {
  const std::string key = "parallelism.expert_parallel_degree",
                    other = "parallelism.expert_tensor_parallel_degree";
  const std::int64_t ranks = transfer.integer(key, 1), tensor = transfer.integer(other, 1);
  if (const Flavor* const known = flavor_of(transfer); ranks == 1 || (known && known->experts == 0)) {
    transfer.without_effect(key, ranks == 1 ? "as here" : "the model has no experts");
    transfer.without_effect(other, "strategy tensor splits experts as it splits MLPs");
    return;
  }
  if (tensor != 1 && tensor != axes.tensor) {
    transfer.refuse(other, "experts are whole, or split as MLPs are");
    transfer.refuse(key, "experts are whole, or split as MLPs are");
    return;
  }
  carry_experts(transfer, axes, ranks, tensor != axes.tensor, key, other);
}

// ------------------------------------------------------------------- torchtitan

constexpr Fate carried = Fate::carried, refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* tokens = "training reads tokens; prun tokenize makes them";
constexpr const char* profiles = "prun plan, prun trace and prun report say where time and memory go";
constexpr const char* checkpoints =
    "checkpoints are whole, checked, written beside training, and go on in any layout";
constexpr const char* planned = "the plan orders exchanges and computation";
constexpr const char* eight_bits =
    "strategy fp8 multiplies in e4m3, with a scale for each block of 128 (docs/precision.md)";
constexpr const char* choice = "the recipe computes again as little as makes the plan fit, mode = \"budget\"";

constexpr std::array rules = {
    Rule{"job.*", "", without_effect, "run.name and run.out say what a run is called and where it lies"},
    Rule{"profiling.*", "", without_effect, profiles},
    Rule{"metrics.log_freq", "", carried, "observer.console.every"},
    Rule{"metrics.enable_tensorboard", "true", carried, "observer.tensorboard."},
    Rule{"metrics.enable_wandb", "true", carried, "observer.wandb."},
    Rule{"metrics.*", "", without_effect, "log.jsonl has every number of every rank"},
    Rule{"model.tokenizer_path", "", without_effect, tokens},
    Rule{"model.hf_assets_path", "", without_effect, tokens},
    Rule{"model.norm_type", "rmsnorm|fused_rmsnorm|compiled_rmsnorm", without_effect, "as here"},
    Rule{"model.norm_type", "", refused, "llama norms by RMSNorm"},
    Rule{"model.converters", "[]|", without_effect, "as here"},
    Rule{"model.converters", "", refused, eight_bits},
    Rule{"model.print_after_conversion", "", without_effect, "prun plan --program shows what runs"},
    Rule{"optimizer.implementation", "", without_effect, "an update is one kernel"},
    Rule{"optimizer.fused", "", without_effect, "an update is one kernel"},
    Rule{"optimizer.early_step_in_backward", "false", without_effect, "as here"},
    Rule{"optimizer.early_step_in_backward", "", refused,
         "without clipping and with offload, updates start beside backward"},
    Rule{"lr_scheduler.decay_ratio", "", refused,
         "the learning rate falls from the end of the warm-up on; schedule.steps says until when"},
    Rule{"training.max_norm", "", carried, "optimizer.clip"},
    Rule{"training.seq_len", "", carried, "model.seq"},
    Rule{"training.steps", "", carried, "run.steps"},
    Rule{"training.seed", "", carried, "run.seed"},
    Rule{"debug.seed", "", carried, "run.seed"},
    Rule{"*.deterministic", "", without_effect,
         "a recipe gives the same bits; on GPUs with device.deterministic"},
    Rule{"training.dataset*", "", refused, "data are asked for; docs/data.md makes tokens of text"},
    Rule{"dataset.*", "", refused, "data are asked for; docs/data.md makes tokens of text"},
    Rule{"training.compile", "", without_effect, "what runs is planned ahead"},
    Rule{"training.gc_*", "", without_effect, "there is nothing to collect"},
    Rule{"training.mixed_precision_param", "bfloat16", carried, "precision.compute", "bf16"},
    Rule{"training.mixed_precision_param", "float32", carried, "precision.compute", "fp32"},
    Rule{"training.mixed_precision_reduce", "float32", carried, "precision.reduce", "fp32"},
    Rule{"training.mixed_precision_reduce", "bfloat16", carried, "precision.reduce", "bf16"},
    Rule{"training.dtype", "float32", without_effect, "masters are fp32"},
    Rule{"training.enable_cpu_offload", "false", without_effect, "as here"},
    Rule{"training.enable_fp8_*", "false", without_effect, "as here"},
    Rule{"compile.*", "", without_effect, "what runs is planned ahead"},
    Rule{"float8.enable_float8_linear", "true", refused, eight_bits},
    Rule{"float8.*", "", without_effect, "they belong to a converter that is not switched on, or refused"},
    Rule{"quantize.*", "", without_effect, "they belong to a converter that is not switched on, or refused"},
    Rule{"mx.*", "", without_effect, "they belong to a converter that is not switched on, or refused"},
    Rule{"comm.*", "", without_effect, "run.hang_limit is 600 seconds"},
    Rule{"fault_tolerance.enable", "false", without_effect, "as here"},
    Rule{"fault_tolerance.*", "", refused, "run.restarts starts all ranks again from the last checkpoint"},
    Rule{"checkpoint.keep_latest_k", "", carried, "run.keep"},
    Rule{"checkpoint.export_dtype", "", without_effect, "prun export --type"},
    Rule{"checkpoint.initial_load_*", "", refused,
         "model.init takes a folder of Hugging Face, or a checkpoint of prun"},
    Rule{"checkpoint.*", "", without_effect, checkpoints},
    Rule{"activation_checkpoint.selective_ac_option", "", refused, choice},
    Rule{"activation_checkpoint.*", "", without_effect, "the choice of ops is the planner's"},
    Rule{"validation.enabled", "false", without_effect, "as here"},
    Rule{"validation.enable", "false", without_effect, "as here"},
    Rule{"validation.dataset*", "", refused,
         "[[validation]] names sets, data.validation a share of the data"},
    Rule{"validation.*", "", without_effect, "an evaluation takes batches of the recipe's size"},
    Rule{"parallelism.enable_async_tensor_parallel", "", without_effect, planned},
    Rule{"parallelism.enable_compiled_autograd", "", without_effect, planned},
    Rule{"parallelism.disable_loss_parallel", "", without_effect,
         "the loss is split over tp with the vocabulary"},
    Rule{"parallelism.context_parallel_degree", "1", without_effect, "as here"},
    Rule{"experimental.context_parallel_degree", "1", without_effect, "as here"},
    Rule{"parallelism.context_parallel_rotate_method", "", without_effect,
         "attention is not split along the sequence"},
    Rule{"parallelism.expert_parallel_comm_backend", "", without_effect,
         "exchanges follow from where experts and positions lie"},
    Rule{"parallelism.pipeline_parallel_*", "", without_effect,
         "stages are cut by cost; strategy.pipeline layers says it otherwise"},
    Rule{"experimental.*", "", without_effect, "hooks into their trainer"},
};

struct Schedule {
  const char* theirs;
  const char* ours;
  int chunks;
};
constexpr std::array schedules = {Schedule{"1F1B", "1f1b", 1}, Schedule{"GPipe", "gpipe", 1},
                                  Schedule{"Interleaved1F1B", "interleaved", 2},
                                  Schedule{"ZBVZeroBubble", "zb-v", 2}};

// ------------------------------------------------------------------- reading

std::string text_of(const recipe::Node& node) {
  using Kind = recipe::Node::Kind;
  switch (node.kind) {
    case Kind::integer: return std::to_string(node.integer);
    case Kind::real: return recipe::to_toml(recipe::Value(node.real));
    case Kind::boolean: return node.boolean ? "true" : "false";
    case Kind::list: {
      std::string text;
      for (const recipe::Node& item : node.items)
        text += (text.empty() ? "" : ", ") +
                (item.kind == Kind::string ? "\"" + item.text + "\"" : text_of(item));
      return "[" + text + "]";
    }
    default: return node.text;
  }
}

void flatten(Transfer& transfer, const std::string& above, const recipe::Node& table) {
  for (const recipe::Member& member : table.members)
    if (member.value.kind == recipe::Node::Kind::table)
      flatten(transfer, above + member.key + ".", member.value);
    else
      transfer.add(above + member.key, text_of(member.value));
}

// Returns the first of several names that a setting has had.
std::string first_of(const Transfer& transfer, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (transfer.has(key)) return key;
  return *keys.begin();
}

// ------------------------------------------------------------------- parts

void convert_replicas(Transfer& transfer, const std::string& replicate, std::int64_t replicas,
                      std::int64_t shards) {
  if (replicas == 1 || shards == 1)
    transfer.carried(replicate);
  else
    transfer.refuse(replicate,
                    "parameters are shared out over all ranks of dp, not in each of several groups");
}

void convert_shards(Transfer& transfer, const Axes& axes, std::int64_t shards) {
  const bool keeps = transfer.is("parallelism.fsdp_reshard_after_forward", "never");
  transfer.carried("parallelism.fsdp_reshard_after_forward");
  write_zero(transfer, axes,
             shards == 1 ? 0
             : keeps     ? 2
                         : 3,
             "data_parallel_shard_degree and fsdp_reshard_after_forward");
}

Axes convert_axes(Transfer& transfer) {
  const auto degree = [&](std::initializer_list<const char*> keys, std::int64_t fallback) {
    const std::string key = first_of(transfer, keys);
    transfer.carried(key);
    return transfer.integer(key, fallback);
  };
  Axes axes;
  axes.tensor_origin = "tensor_parallel_degree";
  axes.pipeline_origin = "pipeline_parallel_degree";
  axes.tensor = degree({"parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"}, 1);
  axes.pipeline =
      degree({"parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"}, 1);
  const std::int64_t shards = degree({"parallelism.data_parallel_shard_degree",
                                      "training.data_parallel_shard_degree", "training.data_parallel_degree"},
                                     -1);
  const std::string replicate = first_of(
      transfer, {"parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree"});
  const std::int64_t replicas = transfer.integer(replicate, 1);
  read_sequence(transfer, {"parallelism.context_parallel_degree", "experimental.context_parallel_degree"},
                axes);
  if (axes.tensor < 1 || axes.pipeline < 1 || replicas < 1 || shards == 0)
    throw_error(ErrorCode::bad_input, "degrees of parallelism are counts from 1 on");
  std::optional<std::int64_t> all;
  if (shards > 0) all = product({shards, replicas, axes.tensor, axes.pipeline, axes.sequence});
  axes.data = data_ranks(transfer, all, axes).value_or(1);
  axes.data_origin =
      shards > 0 && !transfer.given().ranks ? "data parallel degrees" : data_origin("--ranks", axes);
  convert_replicas(transfer, replicate, replicas, shards);
  write_axes(transfer, axes);
  convert_shards(transfer, axes, shards);
  if (axes.tensor > 1)
    transfer.set("strategy.tensor.sequence", true,
                 "tensor_parallel_degree, which splits the sequence as well");
  return axes;
}

void convert_pipeline(Transfer& transfer, const Axes& axes) {
  if (axes.pipeline == 1) return;
  const std::string key = "parallelism.pipeline_parallel_schedule", name = transfer.text(key, "1F1B");
  for (const Schedule& known : schedules)
    if (name == known.theirs) {
      transfer.set_text("strategy.pipeline.schedule", known.ours,
                        transfer.has(key) ? key : "default of torchtitan's pipeline_parallel_schedule");
      if (known.chunks > 1) transfer.set("strategy.pipeline.chunks", known.chunks, key);
      transfer.carried(key);
      return;
    }
  transfer.refuse(key, "the schedules are gpipe, 1f1b, interleaved, zb-h1 and zb-v; others are plugins");
}

void convert_batch(Transfer& transfer, const Axes& axes) {
  const std::string local = first_of(transfer, {"training.local_batch_size", "training.batch_size"});
  const std::string pieces = "parallelism.pipeline_parallel_microbatch_size",
                    global = "training.global_batch_size";
  const std::int64_t size = transfer.integer(local, 8);
  const std::string origin = transfer.has(local) ? local : "default of torchtitan's local_batch_size";
  const bool pipeline = axes.pipeline > 1;
  transfer.set("batch.micro", pipeline ? transfer.integer(pieces, 1) : size,
               pipeline ? "pipeline_parallel_microbatch_size" : origin);
  const std::int64_t all = transfer.integer(global, -1);
  transfer.set("batch.global", all > 0 ? all : product({size, axes.data}),
               all > 0 ? global : origin + " x ranks of dp");
  transfer.carried(local);
  transfer.carried(global);
  if (pipeline) transfer.carried(pieces);
}

void convert_optimizer(Transfer& transfer) {
  const std::string name = transfer.text("optimizer.name", "AdamW");
  if (name != "AdamW") {
    transfer.refuse("optimizer.name", "the optimizers are adamw and sgd; others are plugins");
  } else {
    transfer.set_text(
        "optimizer.plugin", "adamw",
        transfer.has("optimizer.name") ? "optimizer.name" : "default of torchtitan's optimizer.name");
    transfer.carried("optimizer.name");
    transfer.set("optimizer.betas",
                 std::vector{transfer.number("optimizer.beta1").value_or(0.9),
                             transfer.number("optimizer.beta2").value_or(0.95)},
                 "optimizer.beta1 and beta2, or their defaults");
    transfer.carried("optimizer.beta1");
    transfer.carried("optimizer.beta2");
    transfer.take("optimizer.eps", "optimizer.eps", "1e-8");
    transfer.take("optimizer.weight_decay", "optimizer.weight_decay", "0.1");
  }
  transfer.take("optimizer.lr", "optimizer.lr", "8e-4");
  transfer.take(first_of(transfer, {"lr_scheduler.warmup_steps", "training.warmup_steps"}),
                "optimizer.schedule.warmup", "200");
  const std::string decay = transfer.text("lr_scheduler.decay_type", "linear");
  if (decay == "linear" || decay == "cosine")
    transfer.take("lr_scheduler.decay_type", "optimizer.schedule.kind", "linear");
  else
    transfer.refuse("lr_scheduler.decay_type", "the schedules are constant, linear and cosine");
  transfer.take(first_of(transfer, {"lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"}),
                "optimizer.schedule.final", "0");
}

void convert_memory(Transfer& transfer) {
  const std::string key = "activation_checkpoint.mode", mode = transfer.text(key, "selective");
  if (mode == "full") transfer.set_text("strategy.recompute.mode", "full", key);
  if (mode == "selective")
    transfer.set_text("strategy.recompute.mode", "budget",
                      transfer.has(key) ? key : "default of torchtitan's activation_checkpoint");
  transfer.carried(key);
  if (!transfer.is("training.enable_cpu_offload", "true")) return;
  for (const char* part : {"optimizer", "parameters"})
    transfer.set_text(detail::concat("strategy.offload.", part), "host", "training.enable_cpu_offload");
  transfer.carried("training.enable_cpu_offload");
}

void convert_saving(Transfer& transfer) {
  const std::string enabled = first_of(transfer, {"checkpoint.enable", "checkpoint.enable_checkpoint"});
  if (transfer.is(enabled, "true")) {
    transfer.take("checkpoint.interval", "run.save_every", "500");
    transfer.carried(enabled);
  }
  if (transfer.is("validation.enabled", "true") || transfer.is("validation.enable", "true")) {
    transfer.take("validation.freq", "eval.every", "10");
    if (transfer.integer("validation.steps", -1) > 0) transfer.take("validation.steps", "eval.batches");
    transfer.carried(first_of(transfer, {"validation.enabled", "validation.enable"}));
    if (!transfer.knows("data.validation"))
      transfer.ask("--set data.validation=0.01", "the share of the data to validate on");
  }
}

// Its folder lies within that of all output there, and counts where TensorBoard is switched on.
void convert_tensorboard(Transfer& transfer) {
  const std::string folder = transfer.text("metrics.save_tb_folder");
  if (!transfer.is("metrics.enable_tensorboard", "true") || folder.empty()) return;
  const std::string all = transfer.text("job.dump_folder", "./torchtitan/outputs");
  transfer.set_text("observer.tensorboard.path", all + "/" + folder, "save_tb_folder in job.dump_folder");
  transfer.carried("metrics.save_tb_folder");
}

}  // namespace

void convert_torchtitan(Transfer& transfer, const recipe::Node& root) {
  flatten(transfer, "", root);
  convert_torchtitan_model(transfer);
  const Axes axes = convert_axes(transfer);
  convert_torchtitan_experts(transfer, axes);
  convert_pipeline(transfer, axes);
  convert_batch(transfer, axes);
  convert_optimizer(transfer);
  convert_memory(transfer);
  convert_saving(transfer);
  convert_tensorboard(transfer);
  if (!transfer.has("training.mixed_precision_param"))
    transfer.set_text("precision.compute", "bf16", "default of torchtitan's mixed_precision_param");
  transfer.apply(rules);
}

}  // namespace prun::convert
