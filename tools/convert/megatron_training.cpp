// Carries over Megatron-LM's arguments of batch, optimizer, learning rate and number formats. Where they are
// given in samples, steps follow by the batch that each step has.
#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "convert/layout.hpp"
#include "convert/megatron_parts.hpp"
#include "train/assemble/batch_ramp.hpp"

namespace prun::convert::megatron {
namespace {

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
  transfer.take("num-layers-at-start-in-bf16", "precision.first_in_compute", "1");
  transfer.take("num-layers-at-end-in-bf16", "precision.last_in_compute", "1");
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
