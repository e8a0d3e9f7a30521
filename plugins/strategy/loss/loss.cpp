// Adds terms to the loss of training that keep logits in bounds: z-loss, and label smoothing. A head X of the
// program, an op that states how its logits are computed, is replaced by the op X_regularized with the same
// operands and attributes; evaluation keeps the head as it is.
#include <vector>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class Loss final : public Strategy {
 public:
  explicit Loss(const Options& options) : z_(options.number("z")), smoothing_(options.number("smoothing")) {}

  void apply(Phase, ProgramRef program) override {
    if (z_ == 0 && smoothing_ == 0)
      throw_error(ErrorCode::bad_input,
                  "z and smoothing are 0, so nothing is added to the loss; set one of them");
    bool found = false;
    for (const Segment& segment : program.segments())
      for (const Id op : segment.operations(FunctionKind::forward)) {
        const OpInfo info = program.op(op);
        if (!info.def->logits) continue;
        const std::string kind = std::string(info.kind.view()) + "_regularized";
        std::vector<AttrValue> attrs = {{"z", z_}, {"smoothing", smoothing_}};
        for (std::size_t i = 0; i < info.def->attr_count; ++i)
          attrs.push_back({info.def->attrs[i].name, program.attr(op, info.def->attrs[i].name)});
        raise(program.api().replace_op(program.handle(), op, kind, info.operands,
                                       {attrs.data(), attrs.size()}));
        found = true;
      }
    if (!found)
      throw_error(ErrorCode::unsupported,
                  "the model has no head that says how its logits are had (OpDef::logits), so nothing can be "
                  "added to its loss");
  }

 private:
  double z_, smoothing_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Loss, "loss", "0.1.0", "Adds z-loss and label smoothing to the training loss",
            "phase=model; only=training; tune=changes; changes=z, smoothing; also=z-loss,label-smoothing",
            // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
            "z         | float | 0 | 0..1    | Weight of the z-loss, the squared logsumexp of logits\n"
            "smoothing | float | 0 | 0..0.99 | Label smoothing: share of the target that is spread evenly "
            "over the vocabulary\n");
