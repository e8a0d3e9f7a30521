// Lets parameters vary along `dp`, and leaves out or does wrongly what belongs to that.
#include <string>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class Varies final : public Strategy {
 public:
  explicit Varies(const Options& options) : what_(options.text("what")) {}

  void apply(Phase phase, ProgramRef program) override {
    if (phase == Phase::shard && what_ != "late") program.vary("dp");
    if (phase == Phase::shard) return;
    if (what_ == "late") program.vary("dp");
    if (what_ == "twice") program.periodic(2), program.periodic(3);
    if (what_ == "never") program.periodic(0);
    for (const Segment& segment : program.segments())
      if (segment.info().name.view() == "block") stand_for(segment);
  }

 private:
  static Id value_of(const Segment& segment, std::string_view name) {
    for (const Id id : segment.values())
      if (segment.program().value(id).name.view() == name) return id;
    throw_error(ErrorCode::bad_input, "there is no value '", name, "'");
  }

  void stand_for(const Segment& segment) const {
    const Id up = value_of(segment, "up.bias"), down = value_of(segment, "down.bias");
    const ValueInfo info = segment.program().value(what_ == "dims" ? up : down);
    const Lies own{"dp", PlacementKind::varying};
    const Id state = segment.state({.name = "down.bias.other",
                                    .dims = {info.dims, static_cast<std::uint64_t>(info.rank)},
                                    .init = what_ == "two_starts" ? ones() : zeros(),
                                    .starts_as = what_ == "two_starts" || what_ == "starts" ? down : none,
                                    .lies = {&own, what_ == "starts" ? 1u : 0u}});
    if (what_ == "dims") segment.program().evaluate_with(down, state);
    if (what_ == "again")
      segment.program().evaluate_with(down, state), segment.program().evaluate_with(down, state);
    if (what_ == "own") segment.program().evaluate_with(down, value_of(segment, "down.bias.m"));
  }

  std::string what_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Varies, "varies", "0.1.0", "Lets parameters vary", "phase=shard,placed",
    "what | choice | required | host,late,twice,never,dims,again,own,two_starts,starts | What it does\n");
