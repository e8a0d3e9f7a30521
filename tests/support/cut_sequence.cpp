// Implements a third party's strategy that says what may be varied: each rank of its axis takes a part of
// every sequence.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class CutSequence final : public Strategy {
 public:
  explicit CutSequence(const Options& options) : axis_(options.text("axis")) {}
  void apply(Phase, ProgramRef program) override { program.split("seq", axis_); }

 private:
  std::string axis_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::CutSequence, "cut-sequence", "0.1.0",
            "Splits each sequence over an axis of the mesh",
            "phase=shard; splits=model; axis=own; tune=exact; varies=way:first|second; changes=delay",
            "axis  | string | cut | | Axis of the mesh to split sequences over\n"
            "way   | string | first | | For tests: nothing comes of it\n"
            "delay | int    | 0 | 0..9 | For tests: what nobody may vary\n");
