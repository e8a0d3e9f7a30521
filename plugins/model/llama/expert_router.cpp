#include "expert_router.hpp"

namespace prun {

ExpertRouter::ExpertRouter(const Options& options)
    : experts_(options.integer("experts")),
      choices_(options.integer("choices")),
      sigmoid_(options.text("router") == "sigmoid"),
      normalise_(options.flag("router_normalise")),
      bias_(options.flag("router_bias")),
      groups_(options.integer("router_groups")),
      chosen_groups_(options.integer("router_chosen_groups")),
      group_best_(options.integer("router_group_best")),
      scale_(options.number("router_scale")),
      bias_rate_(options.number("router_bias_rate")),
      balance_(options.number("balance")),
      z_(options.number("router_z")) {}

void ExpertRouter::check_groups() const {
  if (groups_ > 1 && (experts_ % groups_ != 0 || choices_ > chosen_groups_ * (experts_ / groups_)))
    throw_error(ErrorCode::bad_input, "cannot choose ", choices_, " of ", experts_,
                " experts with model.router_groups = ", groups_,
                " and router_chosen_groups = ", chosen_groups_,
                "; make experts a multiple of the groups and choose more of them");
}

ChosenExperts ExpertRouter::build(const SegmentPart& s, const Dim& hidden, Id x, bool biased) const {
  const Dim routes{"routes", experts_};
  const Id weight = s.weight("router.weight", {routes, hidden});
  const Id logits =
      s.op("router", {x, weight, biased ? s.vector("router.scores.bias", {routes}, zeros()) : none});
  const Id bias = bias_ ? s.untrained("router.bias", {routes}) : none;
  const std::vector<Id> chosen = s.ops("route", {logits, bias}, 2,
                                       {{"choices", static_cast<double>(choices_)},
                                        {"sigmoid", sigmoid_ ? 1.0 : 0.0},
                                        {"normalise", normalise_ ? 1.0 : 0.0},
                                        {"groups", static_cast<double>(groups_)},
                                        {"chosen_groups", static_cast<double>(chosen_groups_)},
                                        {"group_best", static_cast<double>(group_best_)},
                                        {"scale", scale_}});
  balance(s, logits, chosen[0], bias);
  return {chosen[0], chosen[1]};
}

// Choices are counted whether or not anything follows from them.
void ExpertRouter::balance(const SegmentPart& s, Id logits, Id index, Id bias) const {
  const bool costs = balance_ != 0 || z_ != 0;
  const Id counts = s.tally("choices", {{"routes", experts_}}),
           losses = costs ? s.tally("uneven", {{"loss", 2}}) : none;
  s.ops("balance", {costs ? logits : none, index, s.targets(), s.runtime("inv_sequences"), counts, losses}, 0,
        {{"sigmoid", sigmoid_ ? 1.0 : 0.0}, {"coefficient", balance_}, {"z", z_}});
  if (bias != none && bias_rate_ != 0)
    s.insert(FunctionKind::update, none, "steer", {counts, s.runtime("keep"), bias}, 0,
             {{"rate", bias_rate_}});
}

void ExpertRouter::write_config(const Family& family, ConfigWriter& config) const {
  const bool third = has_sigmoid(family), second = family.experts == ExpertKeys::deepseek2;
  if (sigmoid_ != third) throw_no_key(family, "router");
  if (bias_ != third) throw_no_key(family, "router_bias");
  const bool minimax = family.experts == ExpertKeys::minimax;
  if (family.experts == ExpertKeys::mixtral || family.experts == ExpertKeys::gpt_oss || minimax || second) {
    if (normalise_ == second) throw_no_key(family, "router_normalise");
  } else if (family.experts == ExpertKeys::qwen && family.all_sparse) {
    if (!normalise_) throw_no_key(family, "router_normalise");
  } else {
    config.set("norm_topk_prob", normalise_);
  }
  if (!is_deepseek(family)) {
    if (groups_ != 1) throw_no_key(family, "router_groups");
    if (scale_ != 1) throw_no_key(family, "router_scale");
    return;
  }
  if (groups_ > 1 && group_best_ != (second ? 1 : 2)) throw_no_key(family, "router_group_best");
  if (second) config.set("topk_method", groups_ > 1 ? "group_limited_greedy" : "greedy");
  config.set("n_group", groups_);
  config.set("topk_group", chosen_groups_);
  config.set("routed_scaling_factor", scale_);
}

}  // namespace prun
