// Converts DeepSpeed's JSON. It lacks the model, the data and the numbers of steps and ranks: these are asked
// for.
#include <array>
#include <cmath>
#include <string>

#include "convert/layout.hpp"
#include "convert/transfer.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
namespace {

// ------------------------------------------------------------------- deepspeed experts
// Reads the section expert_parallel of DeepSpeed's JSON, which distributes the experts of a model over ranks.

constexpr Fate carried = Fate::carried, refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* model = "the model of the recipe says what its routers and experts are";
constexpr const char* rows = "the op of the experts puts rows in order and computes them";
constexpr const char* exchanges = "exchanges follow from where experts and positions lie";

constexpr std::array expert_rules = {
    Rule{"expert_parallel.preset_model", "", without_effect, model},
    Rule{"expert_parallel.*_pattern", "", without_effect, model},
    Rule{"expert_parallel.*_attr", "", without_effect, model},
    Rule{"expert_parallel.expert_w*", "", without_effect, model},
    Rule{"expert_parallel.has_shared_experts", "", without_effect, model},
    Rule{"expert_parallel.expert_activation", "null|silu|swiglu", without_effect, "as here"},
    Rule{"expert_parallel.expert_activation", "", refused, "the MLPs of experts are SwiGLU"},
    Rule{"expert_parallel.score_apply", "auto|post", without_effect, "as here"},
    Rule{"expert_parallel.score_apply", "", refused, "weights multiply what experts give"},
    Rule{"expert_parallel.load_balance_coeff", "null", without_effect, "as here"},
    Rule{"expert_parallel.use_grouped_mm", "", without_effect, rows},
    Rule{"expert_parallel.*grouped_mm*", "", without_effect, rows},
    Rule{"expert_parallel.*_impl", "", without_effect, rows},
    Rule{"expert_parallel.comm_*", "", without_effect, exchanges},
    Rule{"expert_parallel.async_split_plan", "", without_effect, exchanges},
    Rule{"expert_parallel.validate_folding_routing", "", without_effect,
         "prun verify compares a layout with one rank"},
    Rule{"expert_parallel.*", "null", without_effect, "as here"},
    Rule{"use_data_before_expert_parallelism", "", without_effect,
         "which ranks are neighbours is said by the order of [mesh]"},
};

void convert_router(Transfer& transfer) {
  const auto take = [&](const char* from, const char* to) {
    const std::string key = detail::concat("expert_parallel.", from);
    if (transfer.has(key) && !transfer.is(key, "null")) transfer.take(key, to);
  };
  take("top_k", "model.choices");
  take("score_func", "model.router");
  take("route_norm", "model.router_normalise");
  take("route_scale", "model.router_scale");
  take("routed_scaling_factor", "model.router_scale");
  take("num_expert_groups", "model.router_groups");
  take("num_limited_groups", "model.router_chosen_groups");
  const std::string coefficient = "expert_parallel.load_balance_coeff";
  if (!transfer.has(coefficient) || transfer.is(coefficient, "null")) return;
  transfer.set("model.router_bias", true, coefficient);
  transfer.take(coefficient, "model.router_bias_rate");
}

// Beside tensor parallelism, experts there are whole unless expert_tensor_parallel_size says otherwise.
void convert_ranks(Transfer& transfer, const Axes& axes) {
  const std::string key = "expert_parallel.autoep_size",
                    other = "expert_parallel.expert_tensor_parallel_size";
  const std::int64_t ranks = transfer.integer(key, 1), tensor = transfer.integer(other, 1);
  const bool with_tensor = tensor != axes.tensor;
  if (with_tensor && tensor != 1) {
    transfer.refuse(other, "experts are whole, or split as MLPs are");
    transfer.refuse(key, "experts are whole, or split as MLPs are");
    return;
  }
  carry_experts(transfer, axes, ranks, with_tensor, key, other);
}

void convert_deepspeed_experts(Transfer& transfer, const Axes& axes) {
  if (!transfer.is("expert_parallel.enabled", "true")) {
    constexpr std::array off = {
        Rule{"expert_parallel.*", "", without_effect, "experts over ranks are not switched on"}};
    transfer.apply(off);
    return;
  }
  transfer.carried("expert_parallel.enabled");
  convert_router(transfer);
  convert_ranks(transfer, axes);
  transfer.apply(expert_rules);
}

// ------------------------------------------------------------------- deepspeed

constexpr const char* buffers =
    "run.bucket_bytes says how much is exchanged at a time; its default follows the model";
constexpr const char* overlaps = "exchanges run beside computation wherever the plan allows it";
constexpr const char* scales = "nothing is scaled, or not in that way";
constexpr const char* profiles = "prun plan, prun trace and prun report say where time and memory go";
constexpr const char* recomputes =
    "which layers are recomputed is said by the model's code there; here by [[strategy]] plugin = "
    "\"recompute\"";
constexpr const char* schedules = "there is no such phase of training";
constexpr const char* codes_of_parts =
    "what travels in codes is what strategy zero keeps in parts: parameters with stage 3, gradients from "
    "stage 1 on";
constexpr const char* pinned =
    "what the offload strategy copies is always pinned, and prefetched by the plan";
constexpr const char* transfers =
    "transfers are started together, and as many are under way as [tier.nvme] depth says";
constexpr const char* no_drives = "nothing lies on drives";

constexpr std::array rules = {
    // Of fp16 and bf16 only the settings are left that are not handled below.
    Rule{"fp16.enabled", "false", without_effect, "as here"},
    Rule{"fp16.*", "", without_effect, scales},
    Rule{"bf16.enabled", "false", without_effect, "as here"},
    Rule{"bfloat16.enabled", "false", without_effect, "as here"},
    Rule{"bfloat16.loss_scale", "", without_effect, scales},
    Rule{"bf16.immediate_grad_update", "", without_effect, "gradients are added where they arise"},
    Rule{"data_types.grad_accum_dtype", "fp32|fp64|bf16", carried, "precision.gradient"},
    Rule{"data_types.grad_accum_dtype", "", refused, "gradients are summed in fp32, bf16 or fp64"},
    Rule{"communication_data_type", "fp32|bf16", carried, "precision.reduce"},
    Rule{"communication_data_type", "bfp16|bfloat16", carried, "precision.reduce", "bf16"},
    Rule{"communication_data_type", "", refused, "gradients travel in fp32, bf16 or fp64"},
    Rule{"prescale_gradients", "", without_effect,
         "sums over ranks are in precision.reduce, and divided in the update"},
    Rule{"gradient_predivide_factor", "", without_effect, "sums over ranks are in precision.reduce"},
    Rule{"sparse_gradients", "false", without_effect, "as here"},
    Rule{"sparse_gradients", "", refused, "gradients of tables are whole"},
    Rule{"gradient_clipping", "", carried, "optimizer.clip"},
    Rule{"seed", "", carried, "run.seed"},
    Rule{"steps_per_print", "", carried, "observer.console.every"},
    Rule{"tensorboard.enabled", "true", carried, "observer.tensorboard."},
    Rule{"monitor_config.tensorboard.enabled", "true", carried, "observer.tensorboard."},
    Rule{"*tensorboard.*", "", without_effect, "event files have the names that TensorBoard looks for"},
    Rule{"wandb.enabled", "true", carried, "observer.wandb."},
    Rule{"monitor_config.wandb.enabled", "true", carried, "observer.wandb."},
    Rule{"*wandb.*", "", without_effect, "an offline run is written, and wandb sync takes the rest"},
    Rule{"*csv_monitor.enabled", "true", without_effect,
         "log.jsonl in the run's folder has each step's numbers"},
    Rule{"monitor_config.*", "", without_effect, "an observer that is not switched on"},
    Rule{"wandb.*", "", without_effect, "an observer that is not switched on"},
    Rule{"csv_monitor.*", "", without_effect, "an observer that is not switched on"},
    Rule{"wall_clock_breakdown", "", without_effect, profiles},
    Rule{"memory_breakdown", "", without_effect, profiles},
    Rule{"dump_state", "", without_effect, "prun plan shows all of it"},
    Rule{"flops_profiler.*", "", without_effect, profiles},
    Rule{"comms_logger.*", "", without_effect, profiles},
    Rule{"comms_config.*", "", without_effect, profiles},
    Rule{"autotuning.*", "", without_effect, "prun plan prices a recipe in seconds"},
    Rule{"zero_allow_untested_optimizer", "", without_effect,
         "ZeRO takes every optimizer that treats elements alike"},
    Rule{"zero_force_ds_cpu_optimizer", "", without_effect, "updates on the host are the same kernels"},
    Rule{"disable_allgather", "", without_effect, overlaps},
    Rule{"aio.use_gds", "true", refused, "drives and the device meet in the host's memory"},
    Rule{"aio.*", "", without_effect, transfers},
    Rule{"checkpoint.*", "", without_effect, "a checkpoint goes on in any layout"},
    Rule{"load_universal_checkpoint", "", without_effect, "a checkpoint goes on in any layout"},
    Rule{"compile.*", "", without_effect, "what runs is planned ahead"},
    // These are of ZeRO.
    Rule{"zero_optimization.allgather_bucket_size", "", without_effect, buffers},
    Rule{"zero_optimization.reduce_bucket_size", "", without_effect, buffers},
    Rule{"zero_optimization.stage3_prefetch_bucket_size", "", without_effect, buffers},
    Rule{"zero_optimization.stage3_max_live_parameters", "", without_effect,
         "two layers' parameters are together at a time"},
    Rule{"zero_optimization.stage3_max_reuse_distance", "", without_effect,
         "two layers' parameters are together at a time"},
    Rule{"zero_optimization.stage3_param_pers*", "", without_effect, buffers},
    Rule{"zero_optimization.stage3_model_persistence_threshold", "", without_effect, buffers},
    Rule{"zero_optimization.sub_group_size", "", without_effect, buffers},
    Rule{"zero_optimization.allgather_partitions", "", without_effect, "the plan chooses the exchanges"},
    Rule{"zero_optimization.reduce_scatter", "", without_effect, "the plan chooses the exchanges"},
    Rule{"zero_optimization.contiguous_gradients", "", without_effect,
         "gradients lie as the plan places them"},
    Rule{"zero_optimization.round_robin_gradients", "", without_effect,
         "gradients lie as the plan places them"},
    Rule{"zero_optimization.overlap_comm", "", without_effect, overlaps},
    Rule{"zero_optimization.comm_overlap", "", without_effect, overlaps},
    Rule{"zero_optimization.*16*weights_on_model_save", "", without_effect,
         "prun export writes whole weights of any checkpoint"},
    Rule{"zero_optimization.load_from_fp32_weights", "", without_effect, "masters are saved as they are"},
    Rule{"zero_optimization.elastic_checkpoint", "", without_effect, "a checkpoint goes on in any layout"},
    Rule{"zero_optimization.ignore_unused_parameters", "", without_effect,
         "every parameter of a model has a gradient"},
    Rule{"zero_optimization.legacy_stage1", "", without_effect, "there is one stage 1"},
    Rule{"zero_optimization.grad_hooks", "", without_effect, overlaps},
    Rule{"zero_optimization.cpu_offload", "false", without_effect, "as here"},
    Rule{"zero_optimization.cpu_offload_use_pin_memory", "", without_effect, pinned},
    Rule{"zero_optimization.zero_quantized_weights", "true", refused, codes_of_parts},
    Rule{"zero_optimization.zero_quantized_gradients", "true", refused, codes_of_parts},
    Rule{"zero_optimization.zero_quantized_*", "false", without_effect, "as here"},
    Rule{"zero_optimization.zero_hpz_partition_size", "1", without_effect, "as here"},
    Rule{"zero_optimization.zero_hpz_partition_size", "", refused,
         "[mesh] says it by an axis of hosts and one of the ranks of each, which zero names as secondary"},
    Rule{"zero_optimization.mics_*", "", refused,
         "[mesh] says it by an axis of hosts and one of the ranks of each, which zero names as its axis"},
    Rule{"zero_optimization.zenflow.*", "", refused, "every gradient takes part in every update"},
    Rule{"zero_optimization.offload_*.device", "none", without_effect, "as here"},
    Rule{"zero_optimization.offload_*.nvme_path", "", without_effect, no_drives},
    Rule{"zero_optimization.offload_param.max_in_cpu", "", refused,
         "a share in the host's memory is said as parameters = \"host:30, nvme:70\" of the strategy offload"},
    Rule{"zero_optimization.offload_*.ratio", "1|1.0", without_effect, "as here"},
    Rule{"zero_optimization.offload_*.ratio", "", refused,
         "a share is said as optimizer = \"host:30, device:70\" of the strategy offload"},
    Rule{"zero_optimization.offload_*", "", without_effect, pinned},
    // The model's code decides these there.
    Rule{"activation_checkpointing.*", "false", without_effect, "as here"},
    Rule{"activation_checkpointing.*", "null", without_effect, "as here"},
    Rule{"activation_checkpointing.*", "", refused, recomputes},
    Rule{"zero_optimization.stage3_gather_*", "", without_effect,
         "prun export writes whole weights of any checkpoint"},
    // These mean another model or another training.
    Rule{"sparse_attention.*", "", refused, "attention is causal and whole"},
    Rule{"progressive_layer_drop.enabled", "false", without_effect, "as here"},
    Rule{"progressive_layer_drop.*", "", refused, schedules},
    Rule{"curriculum_learning.enabled", "false", without_effect, "as here"},
    Rule{"curriculum_learning.*", "", refused, schedules},
    Rule{"data_efficiency.enabled", "false", without_effect, "as here"},
    Rule{"data_efficiency.*", "", refused, schedules},
    Rule{"compression_training.*", "", refused, "weights are not compressed in training"},
    Rule{"quantize_training.*", "", refused, "weights are not compressed in training"},
    Rule{"elasticity.*", "", refused, "a run goes on with other ranks from a checkpoint, not by itself"},
    Rule{"hybrid_engine.enabled", "false", without_effect, "as here"},
    Rule{"hybrid_engine.*", "", refused, "training and generation are two commands"},
    Rule{"eigenvalue.*", "", refused, schedules},
    Rule{"sequence_parallel_size", "1", without_effect, "as here"},
    Rule{"pipeline.*", "", refused, "stages are those of [[strategy]] plugin = \"pipeline\""},
    Rule{"amp.enabled", "false", without_effect, "as here"},
    Rule{"amp.*", "", refused, "precision.compute takes fp32, bf16 or fp64"},
    Rule{"optimizer.params.bias_correction", "true", without_effect, "as here"},
    Rule{"optimizer.params.torch_adam", "", without_effect, "the same update"},
    Rule{"optimizer.params.adam_w_mode", "true", without_effect, "as here"},
    Rule{"optimizer.params.adam_w_mode", "false", refused, "weight decay is decoupled from the gradient"},
    Rule{"optimizer.params.amsgrad", "false", without_effect, "as here"},
    Rule{"optimizer.params.nesterov", "false", without_effect, "as here"},
    Rule{"optimizer.params.*", "", refused, "the optimizer has no such option"},
    Rule{"optimizer.legacy_fusion", "", without_effect, "an update is one kernel"},
    Rule{"scheduler.params.*", "", refused,
         "a schedule rises in a straight line from 0, and then stays, falls in a line or as a cosine"},
};

// ------------------------------------------------------------------- reading

std::string text_of(const JsonValue& value) {
  switch (value.kind()) {
    case JsonKind::null: return "null";
    case JsonKind::boolean: return value.as_bool() ? "true" : "false";
    case JsonKind::integer: return std::to_string(value.as_int64());
    case JsonKind::unsigned_integer: return std::to_string(value.as_uint64());
    case JsonKind::real: return recipe::to_toml(recipe::Value(value.as_double()));
    case JsonKind::string: return value.as_string();
    default: break;
  }
  JsonWriter json;
  return json.value(value).take();
}

// Writes keys such as "optimizer.params.lr".
void flatten(Transfer& transfer, const std::string& above, const JsonObject& object) {
  for (const JsonMember& member : object.members()) {
    const std::string key = above + member.name;
    if (member.value.is_object() && !member.value.as_object().members().empty())
      flatten(transfer, key + ".", member.value.as_object());
    else
      transfer.add(key, text_of(member.value));
  }
}

std::optional<std::int64_t> count(const Transfer& transfer, std::string_view key) {
  if (!transfer.has(key)) return {};
  return transfer.integer(key, 0);
}

// ------------------------------------------------------------------- parts

// Where no scale is given, or 0, it moves.
void convert_loss_scale(Transfer& transfer) {
  transfer.set_text("precision.compute", "fp16", "fp16.enabled");
  transfer.carried("fp16.enabled");
  if (transfer.number("fp16.loss_scale").value_or(0) != 0) {
    transfer.set_text("loss_scale.rule", "static", "fp16.loss_scale");
    transfer.take("fp16.loss_scale", "loss_scale.initial");
    return;
  }
  if (transfer.has("fp16.loss_scale")) transfer.carried("fp16.loss_scale");
  transfer.set_text("loss_scale.rule", "deepspeed", "fp16.enabled");
  if (const auto power = transfer.number("fp16.initial_scale_power")) {
    transfer.set("loss_scale.initial", std::exp2(*power), "fp16.initial_scale_power");
    transfer.carried("fp16.initial_scale_power");
  }
  transfer.take("fp16.loss_scale_window", "loss_scale.window");
  transfer.take("fp16.hysteresis", "loss_scale.hysteresis");
  transfer.take("fp16.min_loss_scale", "loss_scale.least");
  transfer.take("fp16.consecutive_hysteresis", "loss_scale.consecutive_hysteresis");
}

void convert_precision(Transfer& transfer) {
  const bool bf16 = transfer.is("bf16.enabled", "true") || transfer.is("bfloat16.enabled", "true");
  const bool fp16 = transfer.is("fp16.enabled", "true");
  for (const char* key : {"bf16.enabled", "bfloat16.enabled"})
    if (transfer.is(key, "true")) transfer.set_text("precision.compute", "bf16", key), transfer.carried(key);
  if (fp16) {
    convert_loss_scale(transfer);
  } else if (!bf16 && (transfer.is_left_open("fp16.enabled") || transfer.is_left_open("bf16.enabled"))) {
    if (!transfer.knows("precision.compute"))
      transfer.ask("--set precision.compute=bf16", "or fp32, which the configuration leaves open");
  }
}

// Converts train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks, of which
// one may be missing.
void convert_batch(Transfer& transfer, Axes& axes) {
  const char* const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                              "gradient_accumulation_steps"};
  std::optional<std::int64_t> global = count(transfer, keys[0]), micro = count(transfer, keys[1]),
                              steps = count(transfer, keys[2]);
  for (const auto& number : {global, micro, steps})
    if (number && *number < 1) throw_error(ErrorCode::bad_input, "the batch sizes are counts from 1 on");
  std::optional<std::int64_t> data;
  std::string origin = "--ranks";
  read_sequence(transfer, {"sequence_parallel_size"}, axes);
  if (!transfer.given().ranks && global && micro && steps && *global % product({*micro, *steps}) == 0) {
    data = *global / (*micro * *steps);
    origin = "train_batch_size / (micro batch x accumulation)";
  } else {
    data = data_ranks(transfer, {}, axes);
  }
  if (!data) {
    // Nothing is written without the ranks, which are asked for. With them, either size determines the other.
    for (const char* key : {"batch.global", "batch.micro"})
      if (global || micro) transfer.set(key, global ? *global : *micro, "until --ranks is known");
    return;
  }
  axes.data = *data;
  axes.data_origin = origin;
  const std::int64_t ranks_and_steps = product({steps.value_or(1), *data});
  if (!global && micro) global = product({*micro, ranks_and_steps});
  if (global && !micro && *global % ranks_and_steps == 0) micro = *global / ranks_and_steps;
  if (!global || !micro) return;  // the missing one is asked for
  if (*global % product({*micro, *data}) != 0 || (steps && product({*micro, ranks_and_steps}) != *global))
    throw_error(ErrorCode::bad_input, "train_batch_size = ", *global, " is not micro batch ", *micro,
                " x accumulation ", steps.value_or(*global / (*micro * *data)), " x ", *data,
                " ranks; --ranks N takes another number of them");
  transfer.set("batch.global", *global,
               !transfer.has(keys[0]) ? "micro batch x accumulation x ranks" : keys[0]);
  transfer.set("batch.micro", *micro,
               !transfer.has(keys[1]) ? "train_batch_size / (accumulation x ranks)" : keys[1]);
  for (const char* key : keys)
    if (transfer.has(key)) transfer.carried(key);
}

void convert_optimizer(Transfer& transfer) {
  if (!transfer.has("optimizer.type")) return;
  const std::string type = transfer.text("optimizer.type");
  const bool adam = type == "Adam" || type == "AdamW" || type == "FusedAdam" || type == "DeepSpeedCPUAdam";
  if (!adam && type != "SGD") {
    transfer.refuse("optimizer.type", type == "OneBitAdam"
                                          ? "two runs: adamw for freeze_step steps, then onebit_adam with "
                                            "precision.reduce = \"1bit\" (docs/strategies.md)"
                                          : "the optimizers are adamw and sgd; others are plugins");
    transfer.take("optimizer.params.lr", "optimizer.lr");
    return;
  }
  transfer.carried("optimizer.type");
  transfer.set_text("optimizer.plugin", adam ? "adamw" : "sgd", "optimizer.type");
  transfer.take("optimizer.params.lr", "optimizer.lr", "0.001");
  if (adam) {
    transfer.take("optimizer.params.betas", "optimizer.betas", "[0.9, 0.999]");
    transfer.take("optimizer.params.eps", "optimizer.eps", "1e-8");
    transfer.take("optimizer.params.weight_decay", "optimizer.weight_decay", "0");
  } else {
    transfer.take("optimizer.params.momentum", "optimizer.momentum", "0");
    if (transfer.number("optimizer.params.weight_decay").value_or(0) > 0)
      transfer.refuse("optimizer.params.weight_decay", "weight decay is decoupled from the gradient");
    else
      transfer.take("optimizer.params.weight_decay", "optimizer.weight_decay", "0");
  }
}

// Converts the warm-up and the schedule behind it. A scheduler's peak stands above the optimizer's learning
// rate.
void convert_schedule(Transfer& transfer) {
  if (!transfer.has("scheduler.type")) return;
  const std::string type = transfer.text("scheduler.type"), params = "scheduler.params.";
  const bool decays = type == "WarmupDecayLR", cosine = type == "WarmupCosineLR";
  if (type != "WarmupLR" && !decays && !cosine) {
    transfer.refuse("scheduler.type", "the schedules are constant, linear and cosine, each behind a warm-up");
    return;
  }
  transfer.carried("scheduler.type");
  transfer.set_text("optimizer.schedule.kind",
                    cosine   ? "cosine"
                    : decays ? "linear"
                             : "constant",
                    "scheduler.type");
  transfer.take("scheduler.params.warmup_num_steps", "optimizer.schedule.warmup", "1000");
  if (transfer.has(params + "warmup_max_lr")) transfer.take(params + "warmup_max_lr", "optimizer.lr");
  if (transfer.has(params + "total_num_steps")) {
    transfer.take(params + "total_num_steps", "optimizer.schedule.steps");
    if (!transfer.knows("run.steps")) transfer.take(params + "total_num_steps", "run.steps");
  }
  if (cosine) transfer.take(params + "cos_min_ratio", "optimizer.schedule.final", "0.0001");
  if (transfer.number(params + "warmup_min_lr") == 0.0)
    transfer.without_effect(params + "warmup_min_lr", "as here");
  if (transfer.is(params + "warmup_type", "linear"))
    transfer.without_effect(params + "warmup_type", "as here");
  else if (!transfer.has(params + "warmup_type"))
    transfer.refuse_default(params + "warmup_type", "log", "the learning rate rises in a straight line");
}

// Takes the drives of `option`, whose folder stands beside the device. Several of them are one tier here.
void take_drive(Transfer& transfer, const std::string& above) {
  const std::string path = above + "nvme_path";
  if (!transfer.has(path)) {
    if (!transfer.knows("tier.nvme.paths"))
      transfer.ask("--set tier.nvme.paths=FOLDER", "a folder on each drive, with commas between");
    return;
  }
  transfer.add_text("tier.nvme.paths", transfer.text(path), path);
  transfer.carried(path);
}

// `key` says where the tensors lie that `option` of the strategy offload moves.
void convert_place(Transfer& transfer, const std::string& key, std::string_view option) {
  const std::string device = transfer.text(key);
  const bool drive = device == "nvme";
  if (!drive && device != "cpu" && device != "true") return;
  const std::string above = key.substr(0, key.rfind('.') + 1), place = drive ? "nvme" : "host";
  const double share = transfer.number(above + "ratio").value_or(1);
  const std::int64_t per_cent = std::llround(100 * share);
  const bool partly = per_cent > 0 && per_cent < 100;
  transfer.set_text(detail::concat("strategy.offload.", option),
                    partly ? detail::concat(place, ":", per_cent, ", device:", 100 - per_cent) : place, key);
  transfer.carried(key);
  if (partly) transfer.carried(above + "ratio");
  if (drive) take_drive(transfer, above);
}

// Converts how drives are used; without any drive these settings have no effect.
void convert_drives(Transfer& transfer) {
  if (!transfer.knows("tier.nvme.paths")) {
    for (const char* key : {"aio.queue_depth", "aio.block_size"}) transfer.without_effect(key, no_drives);
    return;
  }
  transfer.take("aio.queue_depth", "tier.nvme.depth");
  const std::int64_t block = transfer.integer("aio.block_size", 0), kib = block / 1024;
  if (!transfer.has("aio.block_size")) return;
  if (block % 4096 != 0 || kib < 4 || kib > 65536)
    return transfer.refuse("aio.block_size", "[tier.nvme] stripe_kib is 4 to 65536 KiB, a multiple of 4");
  transfer.set("tier.nvme.stripe_kib", kib, "aio.block_size");
  transfer.carried("aio.block_size");
}

// Keeps each layer's input for recomputation in the host's memory.
void convert_checkpoints(Transfer& transfer) {
  const std::string above = "activation_checkpointing.", key = above + "cpu_checkpointing";
  if (!transfer.is(key, "true")) return;
  transfer.set_text("strategy.recompute.mode", "full", key);
  transfer.set_text("strategy.offload.activations", "host", key);
  transfer.carried(key);
  for (const char* how : {"partition_activations", "contiguous_memory_optimization",
                          "synchronize_checkpoint_boundary", "profile", "number_checkpoints"})
    transfer.without_effect(above + how, "what each layer keeps lies where the plan places it");
}

// The strategy's default is the host: where the source does not say that of the optimizer, the recipe says
// otherwise.
void complete_offload(Transfer& transfer) {
  if (transfer.knows("strategy.offload.optimizer")) return;
  if (transfer.knows("strategy.offload.parameters"))
    transfer.set_text("strategy.offload.optimizer", "host", "where parameters leave the device, state does");
  else if (transfer.knows("strategy.offload.activations"))
    transfer.set_text("strategy.offload.optimizer", "device", "offload_optimizer is not there");
}

// Weights travel in 8 bits there as here, gradients in 4.
void convert_codes(Transfer& transfer, std::int64_t stage) {
  const auto take = [&](const std::string& key, const char* to, const char* format) {
    if (!transfer.is(key, "true")) return;
    transfer.set_text(to, format, key);
    transfer.carried(key);
  };
  if (stage == 3) take("zero_optimization.zero_quantized_weights", "precision.gather", "int8");
  if (stage >= 1) take("zero_optimization.zero_quantized_gradients", "precision.reduce", "int4");
}

void convert_zero(Transfer& transfer, const Axes& axes) {
  const std::string zero = "zero_optimization.";
  const std::int64_t stage = transfer.integer(zero + "stage", 0);
  if (stage > 0 && axes.data == 1)
    transfer.without_effect(zero + "stage", "one rank shares nothing out");
  else if (transfer.has(zero + "stage"))
    transfer.carried(zero + "stage");
  write_zero(transfer, axes, stage, zero + "stage");
  if (axes.data > 1) convert_codes(transfer, stage);
  convert_place(transfer, zero + "offload_optimizer.device", "optimizer");
  convert_place(transfer, zero + "cpu_offload", "optimizer");
  convert_place(transfer, zero + "offload_param.device", "parameters");
  convert_place(transfer, zero + "cpu_offload_params", "parameters");
  convert_checkpoints(transfer);
  complete_offload(transfer);
  convert_drives(transfer);
}

// The folder counts where TensorBoard is switched on.
void convert_tensorboard(Transfer& transfer) {
  for (const std::string monitor : {"tensorboard.", "monitor_config.tensorboard."})
    if (transfer.is(monitor + "enabled", "true") && !transfer.text(monitor + "output_path").empty())
      transfer.take(monitor + "output_path", "observer.tensorboard.path");
}

void convert_wandb(Transfer& transfer) {
  for (const std::string monitor : {"wandb.", "monitor_config.wandb."})
    if (transfer.is(monitor + "enabled", "true") && !transfer.text(monitor + "project").empty())
      transfer.take(monitor + "project", "observer.wandb.project");
}

}  // namespace

void convert_deepspeed(Transfer& transfer, const JsonValue& root) {
  flatten(transfer, "", root.as_object());
  for (const Setting& setting : transfer.settings())
    if (setting.text == "auto") transfer.leave_open(setting.key, "auto");
  Axes axes;
  if (transfer.has("tensor_parallel.autotp_size")) {
    axes.tensor = transfer.integer("tensor_parallel.autotp_size", 1);
    axes.tensor_origin = "tensor_parallel.autotp_size";
    transfer.carried("tensor_parallel.autotp_size");
  }
  convert_batch(transfer, axes);
  convert_precision(transfer);
  convert_optimizer(transfer);
  convert_schedule(transfer);
  write_axes(transfer, axes);
  convert_deepspeed_experts(transfer, axes);
  convert_zero(transfer, axes);
  convert_tensorboard(transfer);
  convert_wandb(transfer);
  transfer.apply(rules);
}

}  // namespace prun::convert
