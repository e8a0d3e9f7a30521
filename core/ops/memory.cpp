// zero and copy: clearing an accumulator, and moving bytes between a staging buffer and the device.
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
  static constexpr const char* help = "y = x, across queues";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr bool copies = true;
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
  }
};

}  // namespace

std::vector<OpDef> memory_ops() { return {op_def<Zero>(), op_def<Copy>()}; }

}  // namespace prun
