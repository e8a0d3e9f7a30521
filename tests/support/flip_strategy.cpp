// Implements a strategy that has the op flip_bit run behind the updates of a parameter.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Flip final : public Strategy {
 public:
  explicit Flip(const Options& options)
      : segment_(options.text("segment")),
        tensor_(options.text("tensor")),
        attrs_{{"layer", static_cast<double>(options.integer("layer"))},
               {"step", static_cast<double>(options.integer("step"))},
               {"rank", static_cast<double>(options.integer("rank"))}} {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments())
      if (segment.info().name.view() == segment_)
        for (const Id value : segment.values())
          if (program.value(value).name.view() == tensor_)
            segment.insert(FunctionKind::update, none, "flip_bit", {value}, 0,
                           {attrs_[0], attrs_[1], attrs_[2]});
  }

 private:
  std::string segment_, tensor_;
  AttrValue attrs_[3];
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Flip, "flip", "0.1.0", "Flips a bit of one rank's parameter", "phase=shard",
            "segment | string | required | | Whose tensor\n"
            "tensor  | string | required | | Which\n"
            "layer   | int    | 0        | | Of which layer\n"
            "step    | int    | required | | In which step\n"
            "rank    | int    | required | | Of which rank\n");
