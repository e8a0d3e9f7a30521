#include "convert/megatron_experts.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun::convert {
namespace {

constexpr Fate refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* no_drops = "without model.capacity no choice is dropped";
constexpr const char* of_sequences =
    "a capacity is of each sequence, not of a rank's microbatch, and the same in every layout: "
    "model.capacity";
constexpr const char* by_sequence =
    "loads are balanced by sequence (seq_aux_loss), which no layout changes: model.balance";
constexpr const char* rows = "the op of the experts puts rows in order and computes them";

constexpr std::array rules = {
    Rule{"moe-grouped-gemm", "", without_effect, rows},
    Rule{"moe-use-legacy-grouped-gemm", "", without_effect, rows},
    Rule{"moe-permute-fusion", "", without_effect, rows},
    Rule{"moe-router-fusion", "", without_effect, rows},
    Rule{"moe-router-padding*", "", without_effect, rows},
    Rule{"moe-token-dispatcher-type", "", without_effect,
         "exchanges follow from where experts and positions lie"},
    Rule{"moe-enable-deepep", "", without_effect, "exchanges follow from where experts and positions lie"},
    Rule{"moe-flex-dispatcher-*", "", without_effect,
         "exchanges follow from where experts and positions lie"},
    Rule{"moe-shared-expert-overlap", "", without_effect, "the plan orders exchanges and computation"},
    Rule{"moe-per-layer-logging", "", without_effect, "the log has every layer's loads"},
    Rule{"moe-router-dtype", "fp32", without_effect, "scores are in fp32"},
    Rule{"moe-router-dtype", "", refused, "scores are in fp32"},
    Rule{"moe-layer-recompute", "", without_effect,
         "experts keep what comes in and the choices, and compute the rest again"},
    Rule{"moe-expert-capacity-factor", "", refused, of_sequences},
    Rule{"moe-expert-rank-capacity-factor", "", refused, of_sequences},
    Rule{"moe-pad-expert-input-to-capacity", "", refused, of_sequences},
    Rule{"moe-token-drop-policy", "", without_effect, "beside model.capacity, model.capacity_by says it"},
    Rule{"moe-input-jitter-eps", "", refused, "the router adds no noise"},
    Rule{"moe-extended-tp", "", refused, "strategy experts takes several axes"},
    Rule{"moe-router-force-load-balancing", "", refused, "the router's choices count"},
    Rule{"moe-*", "", refused, "this model's routers and experts have no such option"},
};

// Lists options that DeepSpeed's branch of it has for its own experts.
constexpr std::array branch_rules = {
    Rule{"mlp-type", "standard", without_effect, "as here"},
    Rule{"mlp-type", "", refused, "an MLP beside the experts is model.shared_ffn, and adds to them as it is"},
    Rule{"moe-*-capacity*", "", refused, of_sequences},
    Rule{"noisy-gate-policy", "None", without_effect, "as here"},
    Rule{"noisy-gate-policy", "", refused, "the router adds no noise"},
    Rule{"disable-moe-top2-2nd-expert-sampling", "", without_effect, "the router adds no noise"},
    Rule{"use-tutel", "", without_effect, rows},
    Rule{"create-moe-param-group", "", without_effect, "zero takes each parameter over the axes that sum it"},
    Rule{"enable-expert-tensor-parallelism", "", without_effect,
         "strategy tensor splits experts as it splits MLPs"},
};

bool is_of_branch(const Transfer& transfer) {
  constexpr std::array names = {"topk",     "moe-expert-parallel-size", "moe-loss-coeff", "expert-interval",
                                "mlp-type", "moe-train-capacity-factor"};
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return transfer.has(name); });
}

// With one choice the weight is its score; with several they are divided by their sum.
void convert_branch_router(Transfer& transfer) {
  const std::int64_t choices = transfer.integer("topk", 1);
  transfer.take("topk", "model.choices", "1");
  transfer.set("model.router_normalise", choices > 1, "topk: the weights of several choices come to 1");
  if (choices == 2 && !transfer.is("disable-moe-top2-2nd-expert-sampling", "on"))
    transfer.refuse_default("moe-top2-2nd-expert-sampling", "on", "the router adds no noise");
}

void convert_branch(Transfer& transfer) {
  convert_branch_router(transfer);
  if (transfer.has("expert-interval")) transfer.take("expert-interval", "model.sparse_every");
  if (transfer.is("disable-moe-token-dropping", "on"))
    for (const char* key : {"disable-moe-token-dropping", "moe-train-capacity-factor",
                            "moe-eval-capacity-factor", "moe-min-capacity"})
      transfer.without_effect(key, no_drops);
  else if (!transfer.has("moe-train-capacity-factor"))
    transfer.refuse_default("moe-train-capacity-factor", "1", of_sequences);
  if (transfer.number("moe-loss-coeff") == 0.0)
    transfer.without_effect("moe-loss-coeff", "as here");
  else if (transfer.has("moe-loss-coeff"))
    transfer.refuse("moe-loss-coeff", by_sequence);
  else
    transfer.refuse_default("moe-loss-coeff", "0.1", by_sequence);
  transfer.apply(branch_rules);
}

void convert_router(Transfer& transfer) {
  const bool sigmoid = transfer.is("moe-router-score-function", "sigmoid");
  if (transfer.has("moe-router-score-function"))
    transfer.set_text("model.router", sigmoid ? "sigmoid" : "softmax", "moe-router-score-function");
  transfer.carried("moe-router-score-function");
  const bool before = transfer.is("moe-router-pre-softmax", "on");
  if (!sigmoid)
    transfer.set(
        "model.router_normalise", !before,
        before ? "moe-router-pre-softmax" : "softmax of the chosen alone is that of all, normalised");
  transfer.carried("moe-router-pre-softmax");
  transfer.take("moe-router-topk", "model.choices", "2");
  if (transfer.has("moe-router-num-groups")) {
    transfer.take("moe-router-num-groups", "model.router_groups");
    transfer.take("moe-router-group-topk", "model.router_chosen_groups", "1");
  }
  if (transfer.has("moe-router-topk-scaling-factor"))
    transfer.take("moe-router-topk-scaling-factor", "model.router_scale");
  if (!transfer.is("moe-router-enable-expert-bias", "on")) return;
  transfer.set("model.router_bias", true, "moe-router-enable-expert-bias");
  transfer.carried("moe-router-enable-expert-bias");
  transfer.take("moe-router-bias-update-rate", "model.router_bias_rate", "1e-3");
}

// The loss of a microbatch would differ with each layout.
void convert_balance(Transfer& transfer) {
  const std::string kind = transfer.text("moe-router-load-balancing-type", "aux_loss");
  const double coefficient = transfer.number("moe-aux-loss-coeff").value_or(0);
  if (kind == "seq_aux_loss" && coefficient != 0) {
    transfer.take("moe-aux-loss-coeff", "model.balance");
    transfer.carried("moe-router-load-balancing-type");
  } else if (kind == "none" || coefficient == 0) {
    transfer.without_effect("moe-aux-loss-coeff", "as here");
    transfer.without_effect("moe-router-load-balancing-type", "nothing is weighed by it");
  } else {
    transfer.refuse("moe-aux-loss-coeff", by_sequence);
    transfer.refuse("moe-router-load-balancing-type", by_sequence);
  }
  if (transfer.has("moe-z-loss-coeff")) transfer.take("moe-z-loss-coeff", "model.router_z");
}

void convert_mlps(Transfer& transfer) {
  if (const std::string numbers = transfer.text("num-experts"); numbers.find(' ') != std::string::npos)
    throw_error(ErrorCode::unsupported, "--num-experts ", printable(numbers, 60),
                ": all layers that have experts have as many; give one number");
  transfer.take("num-experts", "model.experts");
  transfer.take(transfer.has("moe-ffn-hidden-size") ? "moe-ffn-hidden-size" : "ffn-hidden-size",
                "model.expert_ffn");
  if (transfer.has("moe-shared-expert-intermediate-size"))
    transfer.take("moe-shared-expert-intermediate-size", "model.shared_ffn");
  if (transfer.is("moe-shared-expert-gate", "on")) {
    transfer.set("model.shared_gate", true, "moe-shared-expert-gate");
    transfer.carried("moe-shared-expert-gate");
  }
  if (transfer.is("moe-layer-freq", "1"))
    transfer.without_effect("moe-layer-freq", "as here");
  else if (transfer.has("moe-layer-freq"))
    transfer.refuse("moe-layer-freq",
                    "model.dense_first, sparse_every and dense_layers say which layers have experts");
}

void convert_ranks(Transfer& transfer, const Axes& axes) {
  const char* const key =
      transfer.has("moe-expert-parallel-size") ? "moe-expert-parallel-size" : "expert-model-parallel-size";
  const std::int64_t ranks = transfer.integer(key, 1),
                     tensor = transfer.integer("expert-tensor-parallel-size", axes.tensor);
  const bool with_tensor = tensor == 1 && axes.tensor > 1;
  const char* const other =
      "strategy tensor splits experts as it splits MLPs; strategy experts over its axis keeps them whole";
  if (tensor != axes.tensor && (!with_tensor || ranks == 1)) {
    transfer.refuse("expert-tensor-parallel-size", other);
    transfer.refuse(key, other);
    return;
  }
  carry_experts(transfer, axes, ranks, with_tensor, key, "expert-tensor-parallel-size");
}

}  // namespace

void convert_experts(Transfer& transfer, const Axes& axes) {
  convert_mlps(transfer);
  if (is_of_branch(transfer)) {
    convert_branch(transfer);
  } else {
    convert_router(transfer);
    convert_balance(transfer);
  }
  convert_ranks(transfer, axes);
  transfer.apply(rules);
}

}  // namespace prun::convert
