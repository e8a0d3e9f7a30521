#include "gradient_fusion.hpp"

#include <vector>

#include "prun/lowering.hpp"

namespace prun {
namespace {

using Ids = std::vector<Id>;

// Holds an op whose last operand is its result, and the op of its function that alone reads this.
struct Pair {
  Id first = none, second = none;
  Ids from, to;  // are their operands
  Id between() const { return from.back(); }
};

class Pairs {
 public:
  explicit Pairs(const Segment& segment) : segment_(segment), program_(segment.program()), uses_(segment) {}

  // Calls fuse(pair) for all pairs of these kinds.
  template <class Fuse>
  void each(std::string_view first, std::string_view second, Fuse fuse) const {
    for (int kind = 0; kind < function_kinds; ++kind)
      for (const Id op : segment_.operations(static_cast<FunctionKind>(kind)))
        if (is(op, first))
          if (const Pair pair = pair_of(op); pair.second != none && is(pair.second, second)) fuse(pair);
  }

 private:
  bool is(Id op, std::string_view kind) const { return program_.op(op).kind.view() == kind; }

  Ids operands(Id op) const {
    const Array<Id> all = program_.op(op).operands;
    return {all.begin(), all.end()};
  }

  Pair pair_of(Id op) const {
    const Ids from = operands(op);
    const Ids& readers = uses_.readers(from.back());
    if (readers.size() != 1 || uses_.handed_on(from.back()) ||
        program_.op(readers[0]).function != program_.op(op).function)
      return {};
    return {op, readers[0], from, operands(readers[0])};
  }

  const Segment& segment_;
  ProgramRef program_;
  Uses uses_;
};

}  // namespace

void fuse_residual_gradients(ProgramRef program) {
  const auto residual_of = [](const Pair& pair) { return pair.to[pair.to[0] == pair.between() ? 1 : 0]; };
  for (const Segment& segment : program.segments()) {
    const Pairs pairs(segment);
    pairs.each("layernorm_input_grad", "add", [&](const Pair& pair) {
      const Ids& from = pair.from;
      if (from[5] != none) return;
      program.replace_op(pair.second, "layernorm_input_grad",
                         {from[0], from[1], from[2], from[3], from[4], residual_of(pair), pair.to[2]});
      program.erase(pair.first);
    });
    pairs.each("rmsnorm_input_grad", "add", [&](const Pair& pair) {
      const Ids& from = pair.from;
      if (from[4] != none) return;
      program.replace_op(
          pair.second, "rmsnorm_input_grad",
          {from[0], from[1], from[2], from[3], residual_of(pair), pair.to[2]},
          {{"offset", program.attr(pair.first, "offset")}, {"dims", program.attr(pair.first, "dims")}});
      program.erase(pair.first);
    });
  }
}

void fuse_gelu_gradients(ProgramRef program) {
  for (const Segment& segment : program.segments())
    Pairs(segment).each("linear_input_grad", "gelu_grad", [&](const Pair& pair) {
      if (program.value(pair.between()).dtype != DType::bf16 || pair.to[0] != pair.between()) return;
      if (program.attr(pair.first, "fp8") != 0) return;
      program.replace_op(pair.second, "linear_gelu_grad",
                         {pair.from[0], pair.from[1], pair.to[1], pair.to[2]},
                         {{"in_dims", program.attr(pair.first, "in_dims")}});
      program.erase(pair.first);
    });
}

}  // namespace prun
