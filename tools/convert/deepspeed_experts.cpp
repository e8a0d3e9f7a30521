#include "convert/deepspeed_experts.hpp"

#include <array>
#include <string>

#include "prun/error.hpp"

namespace prun::convert {
namespace {

constexpr Fate refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* model = "the model of the recipe says what its routers and experts are";
constexpr const char* rows = "the op of the experts puts rows in order and computes them";
constexpr const char* exchanges = "exchanges follow from where experts and positions lie";

constexpr std::array rules = {
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

}  // namespace

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
  transfer.apply(rules);
}

}  // namespace prun::convert
