// Splits the dimensions that the recipe lists over an axis: strategies that cover other parts of a model than
// the built-in ones do.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Spread final : public Strategy {
 public:
  explicit Spread(const Options& options)
      : axis_(options.text("axis")),
        dims_(options.texts("dims")),
        weights_(options.texts("weights")),
        ops_(options.texts("ops")) {}
  void apply(Phase, ProgramRef program) override {
    for (const std::string& dim : weights_) program.split(dim, axis_, SplitScope::weights);
    for (const std::string& dim : ops_) program.split(dim, axis_, SplitScope::ops);
    for (const std::string& dim : dims_) program.split(dim, axis_);
  }

 private:
  std::string axis_;
  std::vector<std::string> dims_, weights_, ops_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Spread, "spread", "0.1.0", "Splits any dimensions over an axis of the mesh",
            "phase=shard",
            "axis | string  | required | | Axis of the mesh to split over\n"
            "dims | strings | required | | Dimensions, first come first\n"
            "weights | strings | [] | | Those that parameters and the ops that prefer them have\n"
            "ops  | strings | [] | | Those that only ops have that want others whole\n");
