// Implements a strategy that reads a value which is otherwise between two ops alone: an operand of every op
// of a kind, at the end of the function.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Reader final : public Strategy {
 public:
  explicit Reader(const Options& options)
      : op_(options.text("op")), operand_(static_cast<std::size_t>(options.integer("operand"))) {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments())
      for (const FunctionKind function : {FunctionKind::forward, FunctionKind::backward})
        for (const Id op : segment.operations(function))
          if (program.op(op).kind.view() == op_)
            segment.insert(function, none, "scale", {program.op(op).operands.data[operand_]}, 1,
                           {{"factor", 1.0}});
  }

 private:
  std::string op_;
  std::size_t operand_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Reader, "reader", "0.1.0", "Reads what ops of a kind read or write",
            "phase=memory; bench=operand:0, operand:1",
            "op      | string | required | | Kind of the ops\n"
            "operand | int | 0 | 0..13 | Which operand of them\n");
