// Defines gelu (tanh form, as GPT-2), gelu_erf (as BERT), swiglu (silu(gate) * up, as Llama) and geglu
// (gelu(gate) * up, as Gemma).
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct Gelu {
  static constexpr const char* kind = "gelu";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) { s.like(1, 0); }
  static void gradient(const Gradient& g) { g.input(0, "gelu_grad", {g.arrived(1), g.operand(0)}); }
};

struct GeluGrad {
  static constexpr const char* kind = "gelu_grad";
  static constexpr const char* help = "dx of gelu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(OpShape& s) { s.like(2, 0); }
};

struct GeluErf {
  static constexpr const char* kind = "gelu_erf";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "0.5 x (1 + erf(x / sqrt(2)))";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) { s.like(1, 0); }
  static void gradient(const Gradient& g) { g.input(0, "gelu_erf_grad", {g.arrived(1), g.operand(0)}); }
};

struct GeluErfGrad {
  static constexpr const char* kind = "gelu_erf_grad";
  static constexpr const char* help = "dx of gelu_erf";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(OpShape& s) { s.like(2, 0); }
};

// Sets the shape: x[..., gate, width] has two slots along `gate`: the input of the gate's function, and what
// it multiplies.
void set_gated(OpShape& s, const char* op) {
  const OperandShape& x = s.operand[0];
  require(x.rank >= 3 && x.dims[x.rank - 2].extent == 2, op, " takes [..., 2, width]");
  Dim dims[max_dims];
  for (int i = 0; i < x.rank - 2; ++i) dims[i] = x.dims[i];
  dims[x.rank - 2] = x.dims[x.rank - 1];
  s.output(1, x.dtype, dims, x.rank - 1);
  s.whole(0, x.rank - 2, x.rank - 1);
}

void set_gated_gradient(OpShape& s) {
  s.like(2, 1);
  s.whole(1, s.operand[1].rank - 2, s.operand[1].rank - 1);
}

struct SwiGlu {
  static constexpr const char* kind = "swiglu";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "silu(x[..., 0, :]) * x[..., 1, :]";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) { set_gated(s, kind); }
  static void gradient(const Gradient& g) { g.input(0, "swiglu_grad", {g.arrived(1), g.operand(0)}); }
};

struct SwiGluGrad {
  static constexpr const char* kind = "swiglu_grad";
  static constexpr const char* help = "dx of swiglu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(OpShape& s) { set_gated_gradient(s); }
};

struct GeGlu {
  static constexpr const char* kind = "geglu";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "gelu(x[..., 0, :]) * x[..., 1, :], gelu in its tanh form";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) { set_gated(s, kind); }
  static void gradient(const Gradient& g) { g.input(0, "geglu_grad", {g.arrived(1), g.operand(0)}); }
};

struct GeGluGrad {
  static constexpr const char* kind = "geglu_grad";
  static constexpr const char* help = "dx of geglu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(OpShape& s) { set_gated_gradient(s); }
};

}  // namespace

std::vector<OpDef> activation_ops() {
  return {op_def<Gelu>(),   op_def<GeluGrad>(),   op_def<GeluErf>(), op_def<GeluErfGrad>(),
          op_def<SwiGlu>(), op_def<SwiGluGrad>(), op_def<GeGlu>(),   op_def<GeGluGrad>()};
}

}  // namespace prun
