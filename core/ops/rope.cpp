// The op rope is the rotary position embedding, usually in the half-split form of Llama. It takes queries,
// keys and values out of one packed projection (ops/packed_heads.hpp), turns queries and keys on the way and
// multiplies them by query_scale and key_scale; its gradient turns theirs back and puts all three together.
// The first `turned` channels of a head turn, or all where that is 0; with `interleaved` neighbours make a
// pair among them. Queries grow with the position where `query_growth` is not 0.
#include <vector>

#include "ops/at_position.hpp"
#include "ops/packed_heads.hpp"
#include "ops/positions.hpp"
#include "ops/turn.hpp"

namespace prun {
namespace {

// kernels/rope_frequency.hpp says what they mean.
constexpr AttrDef turn_attrs[] = {real_attr("base", 10000.0),
                                  real_attr("factor", 1.0),
                                  real_attr("low", 1.0),
                                  real_attr("high", 4.0),
                                  real_attr("original", 8192.0),
                                  later(int_attr("scaling", 0)),
                                  later(real_attr("query_scale", 1.0)),
                                  later(real_attr("key_scale", 1.0)),
                                  later(int_attr("turned", 0)),
                                  later(int_attr("interleaved", 0)),
                                  later(real_attr("query_growth", 0.0))};

// Checks operand x, which has whole heads.
void check_turned(const OpShape& s, int x, const char* op) {
  const OperandShape& heads = s.operand[x];
  require(heads.rank == 5 && heads.dims[4].extent % 2 == 0, op,
          " takes [batch, seq, heads, packed, head_dim] with an even head_dim");
  check_scaling(s, op);
  const std::int64_t turned = s.attrs[8].i;
  require(turned >= 0 && turned % 2 == 0 && turned <= heads.dims[4].extent && s.attrs[10].f >= 0, op,
          " turns an even number of a head's channels, and queries do not shrink with the position");
}

struct Rope {
  static constexpr const char* kind = "rope";
  static constexpr const char* at_position = "rope_at";
  static constexpr const char* apart = "rope_apart";
  static constexpr const char* help =
      "packed queries, keys and values apart, the first two turned by position";
  static constexpr OperandDef operands[] = {
      {"x"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}, positions_operand};
  static constexpr const AttrDef (&attrs)[11] = turn_attrs;
  static void rule(OpShape& s) {
    check_turned(s, 0, kind);
    set_apart(s, kind, 0, 1);
    check_positions(s, 0, 4, kind);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    turn_back(g, {0}, "rope_grad", {g.arrived(1), g.arrived(2), g.arrived(3), g.operand(4)}, "turned",
              "interleaved", "query_growth");
  }
};

struct RopeAt {
  static constexpr const char* kind = "rope_at";
  static constexpr const char* help = "rope of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {
      {"x"}, {"position"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static constexpr const AttrDef (&attrs)[11] = turn_attrs;
  static void rule(OpShape& s) {
    check_turned(s, 0, kind);
    require_position(s.operand[0], s.operand[1], kind);
    set_apart(s, kind, 0, 2);
    s.pass_partial({0});
  }
};

struct RopeGrad {
  static constexpr const char* kind = "rope_grad";
  static constexpr const char* help = "dx of rope";
  static constexpr OperandDef operands[] = {{"dq"}, {"dk"}, {"dv"}, {"dx", Access::write}, positions_operand};
  static constexpr const AttrDef (&attrs)[11] = turn_attrs;
  static void rule(OpShape& s) {
    check_turned(s, 0, kind);
    set_together(s, kind, 0, 3);
    check_positions(s, 0, 4, kind);
    s.pass_partial({0, 1, 2});
  }
};

struct RopeApart {
  static constexpr const char* kind = "rope_apart";
  static constexpr const char* help = "rope of a projection in two";
  static constexpr OperandDef operands[] = {{"x_first"},          {"x_last"},           {"q", Access::write},
                                            {"k", Access::write}, {"v", Access::write}, positions_operand};
  static constexpr const AttrDef (&attrs)[11] = turn_attrs;
  static void rule(OpShape& s) {
    check_turned(s, 0, kind);
    set_apart_of_two(s, kind, 0, 2);
    check_positions(s, 0, 5, kind);
    s.pass_partial({0, 1});
  }
  static void gradient(const Gradient& g) {
    turn_back(g, {0, 1}, "rope_apart_grad", {g.arrived(2), g.arrived(3), g.arrived(4), g.operand(5)},
              "turned", "interleaved", "query_growth");
  }
};

struct RopeApartGrad {
  static constexpr const char* kind = "rope_apart_grad";
  static constexpr const char* help = "dx of rope_apart";
  static constexpr OperandDef operands[] = {
      {"dq"}, {"dk"}, {"dv"}, {"dx_first", Access::write}, {"dx_last", Access::write}, positions_operand};
  static constexpr const AttrDef (&attrs)[11] = turn_attrs;
  static void rule(OpShape& s) {
    check_turned(s, 0, kind);
    set_two_together(s, kind, 0, 3);
    check_positions(s, 0, 5, kind);
    s.pass_partial({0, 1, 2});
  }
};

}  // namespace

std::vector<OpDef> rope_ops() {
  return {op_def<Rope>(), op_def<RopeAt>(), op_def<RopeGrad>(), op_def<RopeApart>(), op_def<RopeApartGrad>()};
}

}  // namespace prun
