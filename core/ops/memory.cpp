// zero and copy: clearing an accumulator, and moving bytes between a staging buffer and the device. total:
// what ranks and stages have counted, together. checksum: whether two ranks have the same bytes.
#include <vector>

#include "prun/op.hpp"

namespace prun {
namespace {

struct Zero {
  static constexpr const char* kind = "zero";
  static constexpr const char* help = "x = 0";
  static constexpr OperandDef operands[] = {{"x", Access::write}};
  static constexpr Effect effect = Effect::update;
  static constexpr bool clears = true;
  static void rule(OpShape&) {}
};

struct Copy {
  static constexpr const char* kind = "copy";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x, across queues";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr bool copies = true;
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
    s.pass_maximum({0});
  }
};

struct Total {
  static constexpr const char* kind = "total";
  static constexpr const char* help = "y = x, a sum that is complete";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr bool copies = true;
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.whole(0, 0, s.operand[0].rank);
  }
};

struct Checksum {
  static constexpr const char* kind = "checksum";
  static constexpr const char* help =
      "sums add up, modulo 2^64, to a number that any changed element of x changes";
  static constexpr OperandDef operands[] = {{"x"}, {"sums", Access::write}};
  static void rule(OpShape& s) {
    const Dim several{"sums", 128};
    s.output(1, DType::i64, &several, 1);
    s.whole(0, 0, s.operand[0].rank);
  }
};

}  // namespace

std::vector<OpDef> memory_ops() {
  return {op_def<Zero>(), op_def<Copy>(), op_def<Total>(), op_def<Checksum>()};
}

}  // namespace prun
