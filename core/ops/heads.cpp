// Defines split_heads, which takes queries, keys and values out of one packed projection; join_heads, its
// gradient, puts them together again (ops/packed_heads.hpp).
#include <vector>

#include "ops/packed_heads.hpp"

namespace prun {
namespace {

struct SplitHeads {
  static constexpr const char* kind = "split_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* apart = "split_heads_apart";
  static constexpr const char* help = "queries, keys and values out of a packed projection";
  static constexpr OperandDef operands[] = {
      {"x"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static void rule(OpShape& s) {
    set_apart(s, kind, 0, 1);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "join_heads", {g.arrived(1), g.arrived(2), g.arrived(3)});
  }
};

struct JoinHeads {
  static constexpr const char* kind = "join_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "queries, keys and values side by side, packed by head group";
  static constexpr OperandDef operands[] = {{"q"}, {"k"}, {"v"}, {"x", Access::write}};
  static void rule(OpShape& s) {
    set_together(s, kind, 0, 3);
    s.pass_partial({0, 1, 2});
  }
  static void gradient(const Gradient& g) { g.inputs({0, 1, 2}, "split_heads", {g.arrived(3)}); }
};

struct SplitHeadsApart {
  static constexpr const char* kind = "split_heads_apart";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "queries, keys and values out of a projection in two";
  static constexpr OperandDef operands[] = {
      {"x_first"}, {"x_last"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static void rule(OpShape& s) {
    set_apart_of_two(s, kind, 0, 2);
    s.pass_partial({0, 1});
  }
  static void gradient(const Gradient& g) {
    g.inputs({0, 1}, "join_heads_apart", {g.arrived(2), g.arrived(3), g.arrived(4)});
  }
};

struct JoinHeadsApart {
  static constexpr const char* kind = "join_heads_apart";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "queries, and keys and values side by side";
  static constexpr OperandDef operands[] = {
      {"q"}, {"k"}, {"v"}, {"x_first", Access::write}, {"x_last", Access::write}};
  static void rule(OpShape& s) {
    set_two_together(s, kind, 0, 3);
    s.pass_partial({0, 1, 2});
  }
  static void gradient(const Gradient& g) {
    g.inputs({0, 1, 2}, "split_heads_apart", {g.arrived(3), g.arrived(4)});
  }
};

}  // namespace

std::vector<OpDef> heads_ops() {
  return {op_def<SplitHeads>(), op_def<JoinHeads>(), op_def<SplitHeadsApart>(), op_def<JoinHeadsApart>()};
}

}  // namespace prun
