// A strategy: sums of partial results are made by an exchange of one's own.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class OwnExchange final : public Strategy {
 public:
  explicit OwnExchange(const Options&) {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments())
      for (int kind = 0; kind < function_kinds; ++kind)
        for (Id op : segment.operations(static_cast<FunctionKind>(kind)))
          if (program.op(op).kind.view() == "all_reduce_update") replace(program, op);
  }

 private:
  static void replace(ProgramRef program, Id op) {
    const double axis = program.attr(op, "axis");
    program.replace_kind(op, "total_of_all");
    program.set_attr(op, "axis", axis);
  }
};

}  // namespace

PRUN_PLUGIN(strategy, OwnExchange, "own-exchange", "1.0.0", "Sums over ranks by the op total_of_all",
            "phase=state", "");
