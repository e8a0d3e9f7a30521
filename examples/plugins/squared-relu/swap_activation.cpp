// A strategy: puts one activation op in the place of another, wherever the model uses it.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class SwapActivation final : public Strategy {
 public:
  explicit SwapActivation(const Options& options) : from_(options.text("from")), to_(options.text("to")) {}

  void apply(Phase, ProgramRef program) override {
    int swapped = 0;
    for (const Segment& segment : program.segments())
      for (Id op : segment.operations(FunctionKind::forward)) {
        if (program.op(op).kind.view() != from_) continue;
        program.replace_kind(op, to_);
        ++swapped;
      }
    if (swapped == 0) throw_error(ErrorCode::bad_input, "the model has no op '", from_, "' to swap");
  }

 private:
  std::string from_, to_;
};

}  // namespace

PRUN_PLUGIN(strategy, SwapActivation, "swap-activation", "1.0.0", "Replaces one activation by another",
            "phase=model",
            "from | string | gelu     | | Op to replace\n"
            "to   | string | required | | Op to replace it with\n");
