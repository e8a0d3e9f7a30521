// lm_head with a bias for each word, whole and in the ops of its split form (lm_head.cpp, lm_head_split.cpp):
// logits = x w^T + bias. `x` may call its width by another name than the weight does, as where the head has a
// projection of its own in front of a table that it shares.
#include <vector>

#include "ops/head_shapes.hpp"

namespace prun {
namespace {

// x [batch, seq, width], a weight [vocab, width] and a bias [vocab] at this place.
void check_biased_head(const OpShape& s, int bias, const char* kind) {
  const OperandShape &x = s.operand[0], &w = s.operand[1], &b = s.operand[bias];
  require(x.rank == 3 && w.rank == 2 && x.dims[2].extent == w.dims[1].extent, kind,
          " takes x [batch, seq, width] and a weight [vocab, width]");
  require(s.operand[2].dtype == DType::i32, kind, " takes i32 targets [batch, seq]");
  require(b.rank == 1 && b.dims[0] == w.dims[0], kind, " takes a bias [vocab]");
}

struct LmHeadBiased {
  static constexpr const char* kind = "lm_head_biased";
  static constexpr const char* help = "language-model head with a bias for each word";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"bias"},
                                            {"scale"},
                                            {"loss", Access::update},
                                            {"dweight", Access::update, true},
                                            {"dbias", Access::update, true},
                                            {"dx", Access::write}};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(OpShape& s) {
    check_biased_head(s, 3, kind);
    s.like(8, 0);
    s.sum(0, 0, 2);
    s.whole(0, 2, 3);
    s.whole(1, 0, 2);
  }
  static void gradient(const Gradient& g) {
    g.bind(6, g.accumulator(1));
    g.bind(7, g.accumulator(3));
    g.pass(0, g.operand(8));
  }
  static void split(const OpSplit& s) {
    const Dim& vocab = s.shape().operand[1].dims[0];
    if (s.dim() != vocab.name) return;
    const Id x = s.operand(0), weight = s.operand(1), targets = s.operand(2), bias = s.operand(3);
    const auto [max, sum, hit] = s.create<3>("lm_head_biased_scan", {x, weight, targets, bias},
                                             {{"vocab", static_cast<double>(vocab.extent)}});
    Id gmax = max;
    for (std::int32_t axis : s.axes())
      gmax = s.create<1>("all_reduce_max", {gmax}, {{"axis", static_cast<double>(axis)}})[0];
    const auto [scaled] = s.create<1>("lm_head_rescale", {max, gmax, sum});
    const auto [lse] = s.create<1>("lm_head_loss", {gmax, scaled, hit, targets, s.operand(5)});
    s.emit("lm_head_biased_grad",
           {x, weight, targets, bias, lse, s.operand(4), s.operand(6), s.operand(7), s.operand(8)});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 3 * product_flops(s); }
};

struct LmHeadBiasedScan {
  static constexpr const char* kind = "lm_head_biased_scan";
  static constexpr const char* help = "as lm_head_scan, with a bias for each word";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"bias"},
                                            {"max", Access::write},
                                            {"sum", Access::write},
                                            {"hit", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0)};
  static void rule(OpShape& s) {
    check_biased_head(s, 3, kind);
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    require(s.attrs[0].i == w.dims[0].extent, kind, ": `vocab` is ", s.attrs[0].i,
            ", but the whole weight has ", w.dims[0].extent, " rows");
    for (int i : {4, 5, 6}) s.output(i, OpShape::statistics(x.dtype), x.dims, 2);
    s.sum(1, 0, 1);
    s.whole(0, 2, 3);
    s.whole(1, 1, 2);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = c.repeated = product_flops(s); }
};

struct LmHeadBiasedGrad {
  static constexpr const char* kind = "lm_head_biased_grad";
  static constexpr const char* help =
      "gradients of the loss over one part of the vocabulary: dweight, dbias, and this part's contribution "
      "to dx";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"bias"},
                                            {"lse"},
                                            {"scale"},
                                            {"dweight", Access::update, true},
                                            {"dbias", Access::update, true},
                                            {"dx", Access::write}};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(OpShape& s) {
    check_biased_head(s, 3, kind);
    s.like(8, 0);
    s.sum(0, 0, 2);
    s.sum(1, 0, 1);
    s.whole(0, 2, 3);
    s.whole(1, 1, 2);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 3 * product_flops(s); }
};

}  // namespace

std::vector<OpDef> lm_head_biased_ops() {
  return {op_def<LmHeadBiased>(), op_def<LmHeadBiasedScan>(), op_def<LmHeadBiasedGrad>()};
}

}  // namespace prun
