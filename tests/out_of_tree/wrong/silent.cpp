// A mistake: it splits the batch and its traits do not say so (splits=batch), so that the recipe's batch
// would be counted for one rank.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class Silent final : public Strategy {
 public:
  explicit Silent(const Options& options) : axis_(options.text("axis")) {}
  void apply(Phase, ProgramRef program) override { program.split("batch", axis_); }

 private:
  std::string axis_;
};

}  // namespace

PRUN_PLUGIN(strategy, Silent, "silent", "1.0.0", "Splits the batch without a word", "phase=shard",
            "axis | string | cp | | Axis of the mesh to split the batch over\n");
