// lm_head_groups gives, beside lm_head_loss or lm_head_regularized_loss, the loss of each group of targets:
//   sums[layer, group, 0] += lse - hit + z * lse^2, lse = gmax + log(scaled), where a target of the group
//   counts sums[layer, group, 1] += 1
// A number that is no group's counts in none.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct LmHeadGroups {
  static constexpr const char* kind = "lm_head_groups";
  static constexpr const char* help = "the loss of an LM head's split form apart by groups of targets";
  static constexpr bool any_order = true;
  static constexpr OperandDef operands[] = {{"gmax"},    {"scaled"}, {"hit"},
                                            {"targets"}, {"groups"}, {"sums", Access::update}};
  static constexpr AttrDef attrs[] = {real_attr("z", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    const OperandShape& sums = s.operand[5];
    require(s.operand[0].rank == 2, kind, " takes gmax, scaled and hit [batch, seq]");
    require(s.operand[3].dtype == DType::i32 && s.operand[4].dtype == DType::i32, kind,
            " takes i32 targets and groups [batch, seq]");
    require(sums.rank == 3 && sums.dims[2].extent == 2 && sums.dtype == DType::f64, kind,
            " takes fp64 sums [layer, group, 2]");
    s.sum(0, 0, 2);
    s.whole(5, 0, 3);
  }
};

}  // namespace

std::vector<OpDef> lm_head_groups_ops() { return {op_def<LmHeadGroups>()}; }

}  // namespace prun
