// Implements a strategy that has the op spoil_gradient work on one tensor's gradient.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Spoil final : public Strategy {
 public:
  explicit Spoil(const Options& options)
      : segment_(options.text("segment")),
        gradient_(std::string(options.text("tensor")) + ".gradient"),
        attrs_{{"sample", static_cast<double>(options.integer("sample"))},
               {"layer", static_cast<double>(options.integer("layer"))}} {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments())
      if (segment.info().name.view() == segment_)
        for (const Id value : segment.values())
          if (program.value(value).name.view() == gradient_)
            segment.insert(FunctionKind::backward, none, "spoil_gradient", {segment.samples(), value}, 0,
                           {attrs_[0], attrs_[1]});
  }

 private:
  std::string segment_, gradient_;
  AttrValue attrs_[2];
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Spoil, "spoil", "0.1.0", "Makes a gradient infinite in one step", "phase=shard",
            "segment | string | required | | Whose tensor\n"
            "tensor  | string | required | | Whose gradient\n"
            "layer   | int    | 0        | | Of which layer\n"
            "sample  | int    | required | | In the step that has this sample\n");
