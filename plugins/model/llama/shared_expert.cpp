#include "shared_expert.hpp"

namespace prun {

void SharedExpert::check() const {
  if (gate && !present())
    throw_error(ErrorCode::bad_input, "model.shared_gate is of a shared expert; set model.shared_ffn");
}

Id SharedExpert::build(const SegmentPart& s, const Dim& hidden, Id x) const {
  const Dim halves{"gate", 2}, width{"ffn", ffn}, one{"one", 1};
  const Id up = s.op("linear", {x, s.weight("shared.up.weight", {halves, width, hidden}), none});
  const Id y = s.op("linear", {s.op("swiglu", {up}), s.weight("shared.down.weight", {hidden, width}), none});
  if (!gate) return y;
  return s.op("sigmoid_gate", {y, s.op("linear", {x, s.weight("shared.gate.weight", {one, hidden}), none})});
}

void SharedExpert::write_config(const Family& family, std::int64_t expert_ffn, ConfigWriter& config) const {
  if (gate != family.shared_expert) throw_no_key(family, "shared_gate");
  if (family.shared_expert) {
    config.set("shared_expert_intermediate_size", ffn);
  } else if (is_deepseek(family)) {
    if (ffn % expert_ffn != 0) throw_no_key(family, "shared_ffn");
    config.set(shared_key(family), ffn / expert_ffn);
  } else if (present()) {
    throw_no_key(family, "shared_ffn");
  }
}

void SharedExpert::add_weights(const ExpertNames& names, const LayerWeights& weights) const {
  if (!present()) return;
  weights.add("shared.up.weight", names.shared + names.gate, "gate ffn, hidden", "gate", 0, 1);
  weights.add("shared.up.weight", names.shared + names.up, "gate ffn, hidden", "gate", 1, 2);
  weights.add("shared.down.weight", names.shared + names.down);
  if (gate) weights.add("shared.gate.weight", names.shared + "_gate.weight");
}

}  // namespace prun
