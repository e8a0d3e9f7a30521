#include "experts.hpp"

#include <algorithm>
#include <cmath>

namespace prun {

ExpertLayers::ExpertLayers(const Options& options)
    : experts_(options.integer("experts")),
      choices_(options.integer("choices")),
      ffn_(options.integer("expert_ffn")),
      shared_ffn_(options.integer("shared_ffn")),
      shared_gate_(options.flag("shared_gate")),
      dense_first_(options.integer("dense_first")),
      every_(options.integer("sparse_every")),
      sigmoid_(options.text("router") == "sigmoid"),
      normalise_(options.flag("router_normalise")),
      bias_(options.flag("router_bias")),
      groups_(options.integer("router_groups")),
      chosen_groups_(options.integer("router_chosen_groups")),
      group_best_(options.integer("router_group_best")),
      scale_(options.number("router_scale")),
      bias_rate_(options.number("router_bias_rate")),
      balance_(options.number("balance")),
      z_(options.number("router_z")),
      capacity_(options.number("capacity")),
      first_come_(options.text("capacity_by") == "position") {
  for (const double layer : options.numbers("dense_layers")) dense_.push_back(std::llround(layer));
}

bool ExpertLayers::has(std::int64_t layer) const {
  return any() && layer >= dense_first_ && (layer + 1) % every_ == 0 &&
         std::find(dense_.begin(), dense_.end(), layer) == dense_.end();
}

void ExpertLayers::check(std::int64_t layers) const {
  if (!any()) {
    if (shared_ffn_ > 0 || dense_first_ > 0 || every_ != 1 || !dense_.empty() || bias_ || balance_ != 0 ||
        z_ != 0 || capacity_ != 0)
      throw_error(ErrorCode::bad_input,
                  "model.experts is 0, and other keys say how the experts of a layer are; set model.experts");
    return;
  }
  bool some = false;
  for (std::int64_t layer = 0; layer < layers; ++layer) some |= has(layer);
  if (!some)
    throw_error(ErrorCode::bad_input, "none of the ", layers,
                " layers has experts by model.dense_first, sparse_every and dense_layers");
  if (choices_ > experts_)
    throw_error(ErrorCode::bad_input, "model.choices = ", choices_,
                " are more than model.experts = ", experts_);
  if (shared_gate_ && shared_ffn_ == 0)
    throw_error(ErrorCode::bad_input, "model.shared_gate is of a shared expert; set model.shared_ffn");
  if (groups_ > 1 && (experts_ % groups_ != 0 || choices_ > chosen_groups_ * (experts_ / groups_)))
    throw_error(
        ErrorCode::bad_input, "model.router_groups = ", groups_,
        " and router_chosen_groups = ", chosen_groups_, " leave no ", choices_, " of ", experts_,
        " experts in equal groups to choose; make experts a multiple of the groups and choose more of them");
  check_capacity();
}

void ExpertLayers::check_capacity() const {
  if (capacity_ == 0 && first_come_)
    throw_error(ErrorCode::bad_input,
                "model.capacity_by says which choices go beyond a capacity, and there is none; set "
                "model.capacity");
  if (capacity_ != 0 && !first_come_ && choices_ == 1 && normalise_)
    throw_error(ErrorCode::bad_input,
                "model.capacity drops the choices with the least weights, and with model.choices = 1 and "
                "router_normalise = true all have the same; set model.capacity_by = \"position\", or "
                "router_normalise = false");
}

Id ExpertLayers::build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const {
  const Dim experts{"experts", experts_}, gate{"gate", 2}, ffn{"ffn", ffn_};
  const Chosen chosen = choose(s, hidden, x);
  const Id y = s.op("experts",
                    {x, capacity_ == 0 ? chosen.index : capped(s, seq, chosen), chosen.weight,
                     s.weight("experts.up.weight", {experts, gate, ffn, hidden}, normal(0.02)),
                     s.weight("experts.down.weight", {experts, hidden, ffn}, normal(0.02))},
                    {{"experts", static_cast<double>(experts_)}});
  return shared_ffn_ == 0 ? y : s.op("add", {y, shared(s, hidden, x)});
}

ExpertLayers::Chosen ExpertLayers::choose(const SegmentPart& s, const Dim& hidden, Id x) const {
  const Dim routes{"routes", experts_};
  const Id logits = s.op("router", {x, s.weight("router.weight", {routes, hidden}, normal(0.02))});
  const Id bias = bias_ ? s.untrained("router.bias", {routes}, zeros()) : none;
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

// A product that is a whole number but for its rounding must not be rounded up.
Id ExpertLayers::capped(const SegmentPart& s, std::int64_t seq, const Chosen& chosen) const {
  const double mean = static_cast<double>(seq * choices_) / static_cast<double>(experts_),
               most = std::min(std::ceil(capacity_ * mean * (1 - 1e-12)), static_cast<double>(seq));
  const Id kept = s.op("cap_choices", {chosen.index, first_come_ ? none : chosen.weight},
                       {{"most", most}, {"experts", static_cast<double>(experts_)}});
  s.ops("count_dropped", {kept, s.targets(), s.tally("dropped", {{"all", 1}})}, 0);
  return kept;
}

// Choices are counted whether or not anything follows from them.
void ExpertLayers::balance(const SegmentPart& s, Id logits, Id index, Id bias) const {
  const bool costs = balance_ != 0 || z_ != 0;
  const Id counts = s.tally("choices", {{"routes", experts_}}),
           losses = costs ? s.tally("uneven", {{"loss", 2}}) : none;
  s.ops("balance", {costs ? logits : none, index, s.targets(), s.runtime("inv_sequences"), counts, losses}, 0,
        {{"sigmoid", sigmoid_ ? 1.0 : 0.0}, {"coefficient", balance_}, {"z", z_}});
  if (bias != none && bias_rate_ != 0)
    s.insert(FunctionKind::update, none, "steer", {counts, s.runtime("keep"), bias}, 0,
             {{"rate", bias_rate_}});
}

Id ExpertLayers::shared(const SegmentPart& s, const Dim& hidden, Id x) const {
  const Dim gate{"gate", 2}, ffn{"ffn", shared_ffn_}, one{"one", 1};
  const Id up = s.op("linear", {x, s.weight("shared.up.weight", {gate, ffn, hidden}, normal(0.02)), none});
  const Id y = s.op(
      "linear", {s.op("swiglu", {up}), s.weight("shared.down.weight", {hidden, ffn}, normal(0.02)), none});
  if (!shared_gate_) return y;
  return s.op("sigmoid_gate",
              {y, s.op("linear", {x, s.weight("shared.gate.weight", {one, hidden}, normal(0.02)), none})});
}

}  // namespace prun
