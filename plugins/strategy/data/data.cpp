// In data parallelism each coordinate of an axis takes its part of every microbatch. The ops' rules say that
// gradients, the loss and the count of targets become partial sums, and where they are summed.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class DataParallel final : public Strategy {
 public:
  explicit DataParallel(const Options& options) : axis_(options.text("axis")) {}
  void apply(Phase, ProgramRef program) override { program.split("batch", axis_); }

 private:
  std::string axis_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::DataParallel, "data", "0.1.0",
            "Splits the batch over an axis of the mesh (data parallelism)",
            "phase=shard; splits=batch; axis=own; tune=exact; also=ddp,dp,data_parallel,distributed",
            "axis | string | dp | | Mesh axis to split the batch over\n");
