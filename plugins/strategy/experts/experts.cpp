// In expert parallelism each rank of an axis has a part of a model's experts, whole, and computes for all
// positions the choices of its experts. Over an axis that splits the batch, positions come together for that
// and results go back in parts; over an axis of strategy tensor they are there already. The places of these
// exchanges follow from the ops' rules.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class ExpertParallel final : public Strategy {
 public:
  explicit ExpertParallel(const Options& options) : axes_(options.texts("axis")) {}

  void apply(ProgramRef program) override {
    if (!has_experts(program))
      throw_error(ErrorCode::bad_input, "the model has no dimension experts to split over '", axes_.front(),
                  "'; leave the strategy out");
    for (const std::string& axis : axes_) program.split("experts", axis, SplitScope::weights);
  }

 private:
  static bool has_experts(ProgramRef program) {
    for (const Segment& segment : program.segments())
      for (const Id id : segment.values()) {
        const ValueInfo value = program.value(id);
        for (std::int32_t i = 0; i < value.rank; ++i)
          if (value.dims[i].name.view() == "experts") return true;
      }
    return false;
  }

  std::vector<std::string> axes_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::ExpertParallel, "experts", "0.1.0", "Gives each rank of an axis a part of the experts",
    "phase=shard; axis=batch; tune=exact; also=ep,expert_parallel,expert-parallel,moe",
    "axis | names | dp | | Axes of the mesh whose ranks share out the experts: of data, tensor or both\n");
