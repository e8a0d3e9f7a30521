// Shards optimizer state over an axis and writes the collectives itself, correctly and wrongly: prun refuses
// sums and gathers that are missing, and buffers that lie where others do.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class OwnShards final : public Strategy {
 public:
  explicit OwnShards(const Options& options) : axis_(options.text("axis")), what_(options.text("what")) {}

  void apply(Phase phase, ProgramRef program) override {
    if (phase == Phase::state) return program.shard_state({axis_}, {});
    for (const FlatParameter& flat : program.flat_parameters()) {
      const Segment segment(program, flat.segment);
      const AttrValue axis{"axis", static_cast<double>(flat.ranks.number)},
          ranks{"parts", static_cast<double>(flat.ranks.extent)};
      if (what_ != "unsummed")
        segment.insert_on(FunctionKind::reduce, none, "reduce_scatter", {flat.gradients, flat.own_gradients},
                          {axis, {"dim", 0}, ranks});
      if (what_ != "unsummed_further")
        for (const AxisInfo& further : flat.summed)
          segment.insert_on(FunctionKind::reduce, none, "all_reduce_update", {flat.own_gradients},
                            {{"axis", static_cast<double>(further.number)}});
      if (what_ == "summed_twice")
        segment.insert_on(FunctionKind::reduce, none, "all_reduce_update", {flat.own_gradients}, {axis});
      if (what_ != "ungathered")
        segment.insert_on(FunctionKind::update, none, "all_gather", {flat.own_parameters, flat.parameters},
                          {axis, {"dim", 0}, ranks});
      if (what_ == "stray") program.lie_within(flat.own_parameters, flat.gradients, flat.ranks);
    }
  }

 private:
  std::string axis_, what_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::OwnShards, "own-shards", "0.1.0",
            "Shards optimizer state, and writes its collectives", "phase=state,collectives; axis=batch",
            "axis | string | dp | | Axis of the mesh whose ranks have a shard each\n"
            "what | choice | all | all,unsummed,unsummed_further,summed_twice,ungathered,stray | What it "
            "writes of them\n");
