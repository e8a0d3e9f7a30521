// rope: rotary position embedding, in the half-split form of Llama and Qwen2, on packed queries, keys and
// values [batch, seq, heads, packed, head_dim]. Of the packed slots of a head group the queries and the key
// turn, the value stays. Its gradient is the same rotation backwards.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct Rope {
  static constexpr const char* kind = "rope";
  static constexpr const char* help = "rotates queries and keys by their position";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("base", 10000.0), int_attr("inverse", 0)};
  static void rule(OpShape& s) {
    const OperandShape& x = s.operand[0];
    require(x.rank == 5 && x.dims[4].extent % 2 == 0,
            "rope takes [batch, seq, heads, packed, head_dim] with an even head_dim");
    s.like(1, 0);
    s.whole(0, 3, 5);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "rope", {g.arrived(1)}, {{"base", g.attr("base")}, {"inverse", 1.0 - g.attr("inverse")}});
  }
};

}  // namespace

std::vector<OpDef> rope_ops() { return {op_def<Rope>()}; }

}  // namespace prun
