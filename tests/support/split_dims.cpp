// A strategy that splits the dimensions it is told, for programs that no built-in strategy makes.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class SplitDims final : public Strategy {
 public:
  explicit SplitDims(const Options& options) : axis_(options.text("axis")), dims_(options.texts("dims")) {}
  void apply(ProgramRef program) override {
    for (const std::string& dim : dims_) program.split(dim, axis_);
  }

 private:
  std::string axis_;
  std::vector<std::string> dims_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::SplitDims, "split-dims", "0.1.0", "Splits dimensions over an axis of the mesh",
            "phase=shard",
            "axis | string  | required | | Axis of the mesh to split over\n"
            "dims | strings | required | | Dimensions to split, the first that fits an op counts\n");
