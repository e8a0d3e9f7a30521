#include "experts.hpp"

namespace prun {

ExpertLayers::ExpertLayers(const Options& options)
    : experts_(options.integer("experts")),
      ffn_(options.integer("expert_ffn")),
      sparse_(options),
      router_(options),
      capacity_(options),
      shared_(options) {}

void ExpertLayers::check(std::int64_t layers) const {
  if (!any()) {
    if (shared_.present() || sparse_.some_dense() || router_.balances() || capacity_.limited())
      throw_error(ErrorCode::bad_input,
                  "model.experts is 0, and other keys say how the experts of a layer are; set model.experts");
    return;
  }
  bool some = false;
  for (std::int64_t layer = 0; layer < layers; ++layer) some |= has(layer);
  if (!some)
    throw_error(ErrorCode::bad_input, "none of the ", layers,
                " layers has experts by model.dense_first, sparse_every and dense_layers");
  if (router_.choices() > experts_)
    throw_error(ErrorCode::bad_input, "model.choices = ", router_.choices(),
                " are more than model.experts = ", experts_);
  shared_.check();
  router_.check_groups();
  capacity_.check(router_);
}

Id ExpertLayers::build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const {
  const Dim experts{"experts", experts_}, gate{"gate", 2}, ffn{"ffn", ffn_};
  const ChosenExperts chosen = router_.build(s, hidden, x);
  const Id y =
      s.op("experts",
           {x, capacity_.limited() ? capacity_.build(s, seq, router_.choices(), chosen) : chosen.index,
            chosen.weight, s.weight("experts.up.weight", {experts, gate, ffn, hidden}),
            s.weight("experts.down.weight", {experts, hidden, ffn})},
           {{"experts", static_cast<double>(experts_)}});
  return shared_.present() ? s.op("add", {y, shared_.build(s, hidden, x)}) : y;
}

}  // namespace prun
