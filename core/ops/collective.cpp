// What ranks exchange, as ops: inserted by the placement pass, run by a comm plugin. Seen over whole values
// they change nothing; they change how a value lies on one mesh axis (attribute `axis`, its number).
#include <vector>

#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef axis_attr[] = {int_attr("axis", 0)};

struct AllReduce {
  static constexpr const char* kind = "all_reduce";
  static constexpr const char* help = "partial sums of an axis become their sum everywhere";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::transfer;
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
  }
};

// For what is accumulated in place: gradients, the loss, the sum of squares.
struct AllReduceUpdate {
  static constexpr const char* kind = "all_reduce_update";
  static constexpr const char* help = "the same in place";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::transfer;
  static void rule(OpShape& s) { s.pass_partial({0}); }
};

}  // namespace

std::vector<OpDef> collective_ops() { return {op_def<AllReduce>(), op_def<AllReduceUpdate>()}; }

}  // namespace prun
