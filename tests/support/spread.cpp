// Splits whatever dimensions the recipe lists over an axis: strategies that cover other parts of a model than
// the built-in ones do.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Spread final : public Strategy {
 public:
  explicit Spread(const Options& options) : axis_(options.text("axis")), dims_(options.texts("dims")) {}
  void apply(ProgramRef program) override {
    for (const std::string& dim : dims_) program.split(dim, axis_);
  }

 private:
  std::string axis_;
  std::vector<std::string> dims_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Spread, "spread", "0.1.0", "Splits any dimensions over an axis of the mesh",
            "phase=shard",
            "axis | string  | required | | Axis of the mesh to split over\n"
            "dims | strings | required | | Dimensions, first come first\n");
