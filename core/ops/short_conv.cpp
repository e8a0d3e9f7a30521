// Defines short_conv, a causal convolution of each channel along the sequence, and silu behind it:
//   y_t = silu(sum_j weight_j x_(t - taps + 1 + j)), so the last tap is the position's own.
// Channels may be several dimensions. Those of the weight may have other names, which no request to split x's
// reaches: then ranks have all of it, and gradients of it are sums over ranks. `documents`
// (ops/documents.cpp) keeps documents apart: what lies before a document counts as zero. `tail` has the last
// inputs, by their position modulo its length, with which short_conv_at goes on where text is made; it does
// not grow with the text.
#include <vector>

#include "base/require.hpp"
#include "ops/at_position.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"
#include "prun/recurrent_state.hpp"

namespace prun {
namespace {

// Checks x [batch, seq, channels..] and weight [channels.., one, taps], and marks the sequence.
void check_conv(OpShape& s, int x, int weight, int documents, const char* op) {
  const OperandShape &of = s.operand[x], &w = s.operand[weight];
  bool fits = of.rank >= 3 && w.rank == of.rank && w.dims[w.rank - 2].extent == 1;
  for (int d = 0; fits && d < of.rank - 2; ++d)
    fits = of.dims[2 + d] == w.dims[d] ||
           (of.dims[2 + d].name != w.dims[d].name && w.dims[d].extent % of.dims[2 + d].extent == 0);
  require(fits, op, " takes x [batch, seq, channels..] and a weight [channels.., 1, taps]");
  if (documents >= 0) check_documents(s, x, documents, op);
  s.whole(x, 1, 2);
  s.whole(weight, w.rank - 2, w.rank);
}

void set_tail(OpShape& s, int x, int weight, int tail) {
  const OperandShape& w = s.operand[weight];
  s.like(tail, x);
  s.operand[tail].dims[1] = {"recent", w.dims[w.rank - 1].extent - 1 + recent_positions};
  s.whole(tail, 1, 2);
}

double conv_flops(const OpShape& s, int x, int weight) {
  const OperandShape& w = s.operand[weight];
  return 2.0 * static_cast<double>(s.operand[x].elements()) * static_cast<double>(w.dims[w.rank - 1].extent);
}

struct ShortConv {
  static constexpr const char* kind = "short_conv";
  static constexpr const char* at_position = "short_conv_at";
  static constexpr const char* help = "causal convolution of each channel along the sequence, and silu";
  static constexpr OperandDef operands[] = {
      {"x"}, {"weight"}, {"y", Access::write}, {"tail", Access::write}, documents_operand};
  static void rule(OpShape& s) {
    check_conv(s, 0, 1, 4, kind);
    s.like(2, 0);
    set_tail(s, 0, 1, 3);
  }
  static void gradient(const Gradient& g) {
    g.input(0, "short_conv_input_grad", {g.arrived(2), g.operand(0), g.operand(1), g.operand(4)});
    g.weight({1}, "short_conv_weight_grad", {g.arrived(2), g.operand(0), g.operand(1), g.operand(4)});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = conv_flops(s, 0, 1); }
};

struct ShortConvAt {
  static constexpr const char* kind = "short_conv_at";
  static constexpr const char* help = "short_conv of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"weight"},
                                            {"position"},
                                            {"kept_tail", Access::update},
                                            {"y", Access::write},
                                            {"tail", Access::write}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_conv(s, 0, 1, -1, kind);
    require_position(s.operand[0], s.operand[2], kind);
    s.like(4, 0);
    set_tail(s, 0, 1, 5);
    const OperandShape &kept = s.operand[3], &tail = s.operand[5];
    bool alike = kept.rank == tail.rank && kept.dtype == tail.dtype;
    for (int d = 0; alike && d < tail.rank; ++d) alike = kept.dims[d] == tail.dims[d];
    require(alike && s.operand[0].dims[1].extent <= recent_positions, kind,
            " keeps a tail as short_conv gives it, and takes ", recent_positions, " positions at most");
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = conv_flops(s, 0, 1); }
};

struct ShortConvInputGrad {
  static constexpr const char* kind = "short_conv_input_grad";
  static constexpr const char* help = "dx of short_conv";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"weight"}, documents_operand, {"dx", Access::write}};
  static void rule(OpShape& s) {
    check_conv(s, 1, 2, 3, kind);
    s.like(4, 1);
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2 * conv_flops(s, 1, 2);
    c.repeated = conv_flops(s, 1, 2);
  }
};

struct ShortConvWeightGrad {
  static constexpr const char* kind = "short_conv_weight_grad";
  static constexpr const char* help = "dweight of short_conv";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"weight"}, documents_operand, {"dweight", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_conv(s, 1, 2, 3, kind);
    s.sum(1, 0, 1);
    const OperandShape &x = s.operand[1], &w = s.operand[2];
    for (int d = 2; d < x.rank; ++d)
      if (x.dims[d].name != w.dims[d - 2].name) s.sum(1, d, d + 1);
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2 * conv_flops(s, 1, 2);
    c.repeated = conv_flops(s, 1, 2);
  }
};

}  // namespace

std::vector<OpDef> short_conv_ops() {
  return {op_def<ShortConv>(), op_def<ShortConvAt>(), op_def<ShortConvInputGrad>(),
          op_def<ShortConvWeightGrad>()};
}

}  // namespace prun
