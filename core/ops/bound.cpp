// halt_beyond: a step that needed more of something than was planned for is masked as one that the host
// halts.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct HaltBeyond {
  static constexpr const char* kind = "halt_beyond";
  static constexpr const char* help = "halt = 1 where needed[layer, 0] > needed[layer, 1] for any layer";
  static constexpr OperandDef operands[] = {{"needed"}, {"halt", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    const OperandShape& needed = s.operand[0];
    require(needed.rank == 2 && needed.dims[1].extent == 2 && needed.dtype == DType::f64 &&
                s.operand[1].rank == 0 && s.operand[1].dtype == DType::f64,
            kind, " takes fp64 [layer, 2] and an fp64 number");
    s.whole(0, 0, 2);
  }
};

}  // namespace

std::vector<OpDef> bound_ops() { return {op_def<HaltBeyond>()}; }

}  // namespace prun
