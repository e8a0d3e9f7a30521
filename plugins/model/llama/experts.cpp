#include "experts.hpp"

namespace prun {

ExpertLayers::ExpertLayers(const Family& family, const Options& options)
    : experts_(options.integer("experts")),
      ffn_(options.integer("expert_ffn")),
      biased_(family.experts == ExpertKeys::gpt_oss),
      limit_(options.number("expert_limit")),
      alpha_(options.number("expert_alpha")),
      sparse_(options),
      router_(options),
      capacity_(options),
      shared_(options) {}

void ExpertLayers::check(std::int64_t layers) const {
  if (limit_ != 0 && !biased_)
    throw_error(ErrorCode::bad_input, "cannot apply model.expert_limit = ", limit_,
                " outside of model.family = \"gpt_oss\"; leave it out, or choose that family");
  if (!any()) {
    if (shared_.present() || sparse_.some_dense() || router_.balances() || capacity_.limited())
      throw_error(ErrorCode::bad_input,
                  "cannot apply keys of experts with model.experts = 0; set model.experts");
    return;
  }
  bool some = false;
  for (std::int64_t layer = 0; layer < layers; ++layer) some |= has(layer);
  if (!some)
    throw_error(ErrorCode::bad_input,
                "cannot use model.experts: by model.dense_first, sparse_every and dense_layers none of the ",
                layers, " layers has any");
  if (router_.choices() > experts_)
    throw_error(ErrorCode::bad_input, "model.choices = ", router_.choices(),
                " are more than model.experts = ", experts_);
  shared_.check();
  router_.check_groups();
  capacity_.check(router_);
}

Id ExpertLayers::build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const {
  ChosenExperts chosen = router_.build(s, hidden, x, biased_);
  if (capacity_.limited()) chosen.index = capacity_.build(s, seq, router_.choices(), chosen);
  const Id y = build_chosen(s, hidden, x, chosen);
  return shared_.present() ? s.op("add", {y, shared_.build(s, hidden, x)}) : y;
}

Id ExpertLayers::build_chosen(const SegmentPart& s, const Dim& hidden, Id x,
                              const ChosenExperts& chosen) const {
  const Dim experts{"experts", experts_}, gate{"gate", 2}, ffn{"ffn", ffn_};
  const Id up = s.weight("experts.up.weight", {experts, gate, ffn, hidden}),
           down = s.weight("experts.down.weight", {experts, hidden, ffn});
  const auto count = static_cast<double>(experts_);
  if (!biased_) return s.op("experts", {x, chosen.index, chosen.weight, up, down}, {{"experts", count}});
  const Id y = s.op(
      "biased_experts",
      {x, chosen.index, chosen.weight, up, down, s.vector("experts.up.bias", {experts, gate, ffn}, zeros())},
      {{"experts", count}, {"limit", limit_}, {"alpha", alpha_}});
  const Id bias = s.vector("experts.down.bias", {experts, hidden}, zeros());
  return s.op("add", {y, s.op("expert_biases", {chosen.index, chosen.weight, bias})});
}

}  // namespace prun
