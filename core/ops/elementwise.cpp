// Defines add, scale and cast, the linear ops, through which partial sums pass. accumulate adds a value into
// the gradient of a parameter that is used as it is. reciprocal and choose are for runtime scalars.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct Add {
  static constexpr const char* kind = "add";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = a + b";
  static constexpr OperandDef operands[] = {{"a"}, {"b"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape &a = s.operand[0], &b = s.operand[1];
    bool same = a.rank == b.rank && a.dtype == b.dtype;
    for (int i = 0; same && i < a.rank; ++i) same = a.dims[i] == b.dims[i];
    require(same, "add takes two values of one type and shape");
    s.like(2, 0);
    s.pass_partial({0, 1});
  }
  static void gradient(const Gradient& g) {
    g.pass(0, g.arrived(2));
    g.pass(1, g.arrived(2));
  }
};

struct Scale {
  static constexpr const char* kind = "scale";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = factor * x";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("factor", 1.0)};
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "scale", {g.arrived(1)}, {{"factor", g.attr("factor")}});
  }
};

struct Cast {
  static constexpr const char* kind = "cast";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the same numbers in another type (to: 0 fp64, 1 fp32, 2 bf16, 7 fp16)";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("to", 1), int_attr("from", 1)};
  static constexpr bool converts = true;
  static void rule(OpShape& s) {
    require(s.attrs[0].i >= 0 && s.attrs[0].i <= 7 && is_float(static_cast<DType>(s.attrs[0].i)),
            "cast: `to` is 0 (fp64), 1 (fp32), 2 (bf16) or 7 (fp16)");
    require(static_cast<std::int64_t>(s.operand[0].dtype) == s.attrs[1].i,
            "cast: `from` says another type than the value has");
    s.like(1, 0);
    s.operand[1].dtype = static_cast<DType>(s.attrs[0].i);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "cast", {g.arrived(1)}, {{"to", g.attr("from")}, {"from", g.attr("to")}});
  }
};

struct Accumulate {
  static constexpr const char* kind = "accumulate";
  static constexpr const char* help = "sum += x";
  static constexpr OperandDef operands[] = {{"x"}, {"sum", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.pass_partial({0}); }
};

struct Reciprocal {
  static constexpr const char* kind = "reciprocal";
  static constexpr const char* help = "y = 1 / x of a number in fp64";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 0 && s.operand[0].dtype == DType::f64, "reciprocal takes one fp64 number");
    s.scalar(1, DType::f64);
  }
};

struct Multiply {
  static constexpr const char* kind = "multiply";
  static constexpr const char* help = "y = a * b of numbers in fp64";
  static constexpr OperandDef operands[] = {{"a"}, {"b"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    for (int i = 0; i < 2; ++i)
      require(s.operand[i].rank == 0 && s.operand[i].dtype == DType::f64, "multiply takes fp64 numbers");
    s.scalar(2, DType::f64);
  }
};

struct Choose {
  static constexpr const char* kind = "choose";
  static constexpr const char* help = "y = a where the number `which` is not 0, else b, all in fp64";
  static constexpr OperandDef operands[] = {{"which"}, {"a"}, {"b"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    for (int i = 0; i < 3; ++i)
      require(s.operand[i].rank == 0 && s.operand[i].dtype == DType::f64, "choose takes fp64 numbers");
    s.scalar(3, DType::f64);
  }
};

}  // namespace

std::vector<OpDef> elementwise_ops() {
  return {op_def<Add>(),        op_def<Scale>(),    op_def<Cast>(),  op_def<Accumulate>(),
          op_def<Reciprocal>(), op_def<Multiply>(), op_def<Choose>()};
}

}  // namespace prun
