// Defines lm_head with terms that keep logits in bounds, whole and in the four ops of its split form
// (lm_head.cpp, lm_head_split.cpp). Of a row with logits l over V words, lse = log of the sum of their
// exponentials:
//   loss = lse - (1 - smoothing) l[target] - smoothing / V * sum of l + z lse^2
//   dl   = exp(l - lse) (1 + 2 z lse) - smoothing / V, and minus 1 - smoothing at the target
// The split form's `hit` has both summands of l, so that ranks exchange what they do without.
#include <vector>

#include "ops/head_shapes.hpp"

namespace prun {
namespace {

constexpr AttrDef z_attr = real_attr("z", 0), smoothing_attr = real_attr("smoothing", 0);

void check_regularized(double z, double smoothing, const char* kind) {
  require(z >= 0 && smoothing >= 0 && smoothing < 1, kind, ": z is ", z, " and smoothing ", smoothing,
          "; z is 0 or more, smoothing lies in [0, 1)");
}

struct LmHeadRegularized {
  static constexpr const char* kind = "lm_head_regularized";
  static constexpr const char* help = "language-model head with z-loss and label smoothing";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"scale"},
                                            {"loss", Access::update},
                                            {"dweight", Access::update, true},
                                            {"dx", Access::write},
                                            head_bias,
                                            head_dbias};
  static constexpr AttrDef attrs[] = {z_attr, smoothing_attr};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static constexpr const char* logits = "lm_head_logits";
  static void rule(OpShape& s) {
    check_head(s, 7, kind);
    check_regularized(s.attrs[0].f, s.attrs[1].f, kind);
    s.like(6, 0);
    s.sum(0, 0, 2);
    s.whole(1, 0, 1);
    keep_widths_whole(s);
  }
  static void gradient(const Gradient& g) {
    g.bind(5, g.accumulator(1));
    g.bind(8, g.accumulator(7));
    g.pass(0, g.operand(6));
  }
  static void split(const OpSplit& s) {
    const Dim& vocab = s.shape().operand[1].dims[0];
    if (s.dim() != vocab.name) return;
    const AttrValue words{"vocab", static_cast<double>(vocab.extent)}, z{"z", s.shape().attrs[0].f},
        smoothing{"smoothing", s.shape().attrs[1].f};
    const Id x = s.operand(0), weight = s.operand(1), targets = s.operand(2), bias = s.operand(7);
    const auto [max, sum, hit] =
        s.create<3>("lm_head_regularized_scan", {x, weight, targets, bias}, {words, smoothing});
    Id gmax = max;
    for (std::int32_t axis : s.axes())
      gmax = s.create<1>("all_reduce_max", {gmax}, {{"axis", static_cast<double>(axis)}})[0];
    const auto [scaled] = s.create<1>("lm_head_rescale", {max, gmax, sum});
    const auto [lse] =
        s.create<1>("lm_head_regularized_loss", {gmax, scaled, hit, targets, s.operand(4)}, {z});
    s.emit("lm_head_regularized_grad",
           {x, weight, targets, lse, s.operand(3), s.operand(5), s.operand(6), bias, s.operand(8)},
           {words, z, smoothing});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 3 * product_flops(s); }
};

struct LmHeadRegularizedScan {
  static constexpr const char* kind = "lm_head_regularized_scan";
  static constexpr const char* help =
      "as lm_head_scan; `hit` is this part's share of the smoothed target's logits";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"max", Access::write},
                                            {"sum", Access::write},
                                            {"hit", Access::write},
                                            head_bias};
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0), smoothing_attr};
  static void rule(OpShape& s) {
    check_head(s, 6, kind);
    check_regularized(0, s.attrs[1].f, kind);
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    require(s.attrs[0].i == w.dims[0].extent, kind, ": `vocab` is ", s.attrs[0].i,
            ", but the whole weight has ", w.dims[0].extent, " rows");
    for (int i : {3, 4, 5}) s.output(i, OpShape::statistics(x.dtype), x.dims, 2);
    s.sum(1, 0, 1);
    keep_widths_whole(s);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = c.repeated = product_flops(s); }
};

struct LmHeadRegularizedLoss {
  static constexpr const char* kind = "lm_head_regularized_loss";
  static constexpr const char* help =
      "lse = gmax + log(scaled); loss += lse - hit + z * lse^2 where the target counts";
  static constexpr OperandDef operands[] = {
      {"gmax"}, {"scaled"}, {"hit"}, {"targets"}, {"loss", Access::update}, {"lse", Access::write}};
  static constexpr AttrDef attrs[] = {z_attr};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 2, kind, " takes gmax, scaled and hit [batch, seq]");
    require(s.operand[3].dtype == DType::i32, kind, " takes i32 targets [batch, seq]");
    s.like(5, 0);
    s.sum(0, 0, 2);
  }
};

struct LmHeadRegularizedGrad {
  static constexpr const char* kind = "lm_head_regularized_grad";
  static constexpr const char* help =
      "gradients of the regularized loss over one part of the vocabulary: dweight, dbias, and this part's "
      "contribution to dx";
  static constexpr OperandDef operands[] = {
      {"x"},     {.name = "weight", .rows_by = 2},  {"targets"},           {"lse"},
      {"scale"}, {"dweight", Access::update, true}, {"dx", Access::write}, head_bias,
      head_dbias};
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0), z_attr, smoothing_attr};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(OpShape& s) {
    check_head(s, 7, kind);
    check_regularized(s.attrs[1].f, s.attrs[2].f, kind);
    s.like(6, 0);
    s.sum(0, 0, 2);
    s.sum(1, 0, 1);
    keep_widths_whole(s);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 3 * product_flops(s); }
};

}  // namespace

std::vector<OpDef> lm_head_regularized_ops() {
  return {op_def<LmHeadRegularized>(), op_def<LmHeadRegularizedScan>(), op_def<LmHeadRegularizedLoss>(),
          op_def<LmHeadRegularizedGrad>()};
}

}  // namespace prun
