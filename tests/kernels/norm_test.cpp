// layernorm, rmsnorm and their gradients against sums in double.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(norm_kernels, norm_test)

namespace prun::test::norm_test {
namespace {

using Extents = std::vector<std::int64_t>;
const std::vector<Extents> shapes = {{2, 3, 1},   {3, 5, 7},    {2, 3, 64},
                                     {2, 9, 129}, {1, 2, 1000}, {5, 2, 3, 33}};
constexpr double eps = 1e-5;

DType statistics(DType type) { return OpShape::statistics(type); }

// One case: inputs, and rows in double.
struct Norm {
  DType type;
  double offset = 0;  // of the gain
  Extents dims, lead;
  std::size_t rows, width;
  Value x, gain, bias, dy;

  Norm(DType t, const Extents& d, double shift = 0)
      : type(t),
        offset(shift),
        dims(d),
        lead(d.begin(), d.end() - 1),
        rows(1),
        width(static_cast<std::size_t>(d.back())),
        x(random_value(t, d, 1, 2)),
        gain(random_value(t, {d.back()}, 2)),
        bias(random_value(t, {d.back()}, 3)),
        dy(random_value(t, d, 4)) {
    for (std::int64_t extent : lead) rows *= static_cast<std::size_t>(extent);
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] + 3);  // a mean to take away
  }

  // Average over a row of f(i), i being the element's index.
  template <class F>
  double average(std::size_t row, F f) const {
    double sum = 0;
    for (std::size_t c = 0; c < width; ++c) sum += f(row * width + c);
    return sum / static_cast<double>(width);
  }
  double mean(std::size_t row) const {
    return average(row, [&](std::size_t i) { return x[i]; });
  }
  // 1 / root of the average square of x - center.
  double rstd(std::size_t row, double center) const {
    return 1 /
           std::sqrt(average(row, [&](std::size_t i) { return (x[i] - center) * (x[i] - center); }) + eps);
  }
  std::vector<double> xhat(bool centered) const {
    std::vector<double> all(x.size());
    for (std::size_t r = 0; r < rows; ++r) {
      const double center = centered ? mean(r) : 0;
      for (std::size_t i = r * width; i < (r + 1) * width; ++i) all[i] = (x[i] - center) * rstd(r, center);
    }
    return all;
  }
  // Statistics as forward leaves them.
  Value rows_of(bool rstds, bool centered) const {
    Value all(statistics(type), lead);
    for (std::size_t r = 0; r < rows; ++r) {
      const double center = centered ? mean(r) : 0;
      all.set(r, rstds ? rstd(r, center) : center);
    }
    return all;
  }
  std::vector<double> dx(bool centered) const {
    const std::vector<double> hat = xhat(centered);
    std::vector<double> result(x.size());
    for (std::size_t r = 0; r < rows; ++r) {
      const auto g = [&](std::size_t i) { return dy[i] * (offset + gain[i % width]); };
      const double flat = centered ? average(r, g) : 0;
      const double slope = average(r, [&](std::size_t i) { return g(i) * hat[i]; });
      const double scale = rstd(r, centered ? mean(r) : 0);
      for (std::size_t i = r * width; i < (r + 1) * width; ++i)
        result[i] = scale * (g(i) - flat - hat[i] * slope);
    }
    return result;
  }
  // before + sum over rows of dy * factor.
  std::vector<double> column_sums(const Value& before, const std::vector<double>& factor) const {
    std::vector<double> sums = before.numbers();
    for (std::size_t i = 0; i < dy.size(); ++i) sums[i % width] += dy[i] * factor[i];
    return sums;
  }
};

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Extents& dims : shapes) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " width " + std::to_string(dims.back()));
        body(set, Norm(type, dims));
      }
}

TEST(LayerNorm, MatchesTheFormula) {
  for_cases([](const InstructionSet& set, const Norm& n) {
    for (bool with_bias : {true, false}) {
      Call call{"layernorm",
                {n.x, n.gain, with_bias ? n.bias : Value(), Value(n.type, n.dims),
                 Value(statistics(n.type), n.lead), Value(statistics(n.type), n.lead)}};
      call.attrs = {{.f = eps}};
      const std::vector<Value> after = run(set, call);
      std::vector<double> y = n.xhat(true);
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = y[i] * n.gain[i % n.width] + (with_bias ? n.bias[i % n.width] : 0);
      expect_close(after[3], y, tolerance(n.type), "y");
      expect_close(after[4], n.rows_of(false, true).numbers(), tolerance(statistics(n.type)), "mean");
      expect_close(after[5], n.rows_of(true, true).numbers(), tolerance(statistics(n.type)), "rstd");
      expect_batch_free(set, call, {0, 3, 4, 5});
    }
  });
}

// With a residual, its last operand but one, an input gradient is that without one, rounded, and then added
// to.
void expect_residual_added(const InstructionSet& set, Call call, const Value& dx) {
  const Value residual = random_value(dx.dtype(), dx.dims(), 17);
  Value sum = dx;
  for (std::size_t i = 0; i < sum.size(); ++i) sum.set(i, dx[i] + residual[i]);
  call.operands[call.operands.size() - 2] = residual;
  EXPECT_EQ(run(set, call).back().bytes(), sum.bytes());
}

TEST(LayerNorm, InputGradientMatchesTheFormula) {
  for_cases([](const InstructionSet& set, const Norm& n) {
    Call call{
        "layernorm_input_grad",
        {n.dy, n.x, n.gain, n.rows_of(false, true), n.rows_of(true, true), Value(), Value(n.type, n.dims)}};
    const Value dx = run(set, call)[6];
    expect_close(dx, n.dx(true), tolerance(n.type), "dx");
    expect_batch_free(set, call, {0, 1, 3, 4, 6});
    expect_residual_added(set, call, dx);
  });
}

TEST(LayerNorm, WeightGradientsAddToWhatIsThere) {
  for_cases([](const InstructionSet& set, const Norm& n) {
    for (DType sum : {DType::f64, DType::f32, DType::bf16}) {
      if (!may_sum(n.type, sum)) continue;
      const Value before = random_value(sum, {n.dims.back()}, 9);
      const std::vector<double> ones(n.dy.size(), 1.0);
      for (int absent : {-1, 4, 5}) {
        Call call{"layernorm_weight_grad",
                  {n.dy, n.x, n.rows_of(false, true), n.rows_of(true, true), before, before}};
        if (absent >= 0) call.operands[static_cast<std::size_t>(absent)] = Value();
        const std::vector<Value> after = run(set, call);
        const double tolerance_here = 4 * sum_tolerance(n.type, sum);
        if (absent != 4) expect_close(after[4], n.column_sums(before, n.xhat(true)), tolerance_here, "dgain");
        if (absent != 5) expect_close(after[5], n.column_sums(before, ones), tolerance_here, "dbias");
        expect_batch_free(set, call, {0, 1, 2, 3});
        if (absent == -1) expect_begins(set, call, {4, 5});
        if (absent != -1) expect_begins(set, call, {absent == 4 ? std::size_t{5} : std::size_t{4}});
      }
    }
  });
}

// With gains as they are, and from one on.
template <class Body>
void for_offsets(Body body) {
  for_cases([&](const InstructionSet& set, const Norm& n) {
    for (double offset : {0.0, 1.0}) body(set, Norm(n.type, n.dims, offset));
  });
}

TEST(RmsNorm, MatchesTheFormula) {
  for_offsets([](const InstructionSet& set, const Norm& n) {
    Call call{"rmsnorm", {n.x, n.gain, Value(n.type, n.dims), Value(statistics(n.type), n.lead)}};
    call.attrs = {{.f = eps}, {.f = n.offset}, {.i = 1}};
    const std::vector<Value> after = run(set, call);
    std::vector<double> y = n.xhat(false);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= n.offset + n.gain[i % n.width];
    expect_close(after[2], y, tolerance(n.type), "y");
    expect_close(after[3], n.rows_of(true, false).numbers(), tolerance(statistics(n.type)), "rstd");
    expect_batch_free(set, call, {0, 2, 3});
  });
}

TEST(RmsNorm, GradientsMatchTheFormula) {
  for_offsets([](const InstructionSet& set, const Norm& n) {
    const Value rstd = n.rows_of(true, false);
    const Call input{"rmsnorm_input_grad",
                     {n.dy, n.x, n.gain, rstd, Value(), Value(n.type, n.dims)},
                     {{.f = n.offset}, {.i = 1}}};
    const Value dx = run(set, input)[5];
    expect_close(dx, n.dx(false), tolerance(n.type), "dx");
    expect_batch_free(set, input, {0, 1, 3, 5});
    expect_residual_added(set, input, dx);
    for (DType sum : {DType::f64, DType::f32, DType::bf16}) {
      if (!may_sum(n.type, sum)) continue;
      const Value before = random_value(sum, {n.dims.back()}, 9);
      const Call weight{"rmsnorm_weight_grad", {n.dy, n.x, rstd, before}, {{.i = 1}}};
      expect_close(run(set, weight)[3], n.column_sums(before, n.xhat(false)), 4 * sum_tolerance(n.type, sum),
                   "dgain");
      expect_batch_free(set, weight, {0, 1, 2});
      expect_begins(set, weight, {3});
    }
  });
}

// A row of several dimensions has the bits of one that is as wide.
TEST(RmsNorm, RowsOfSeveralDimensionsAreThoseOfOne) {
  const Extents apart = {2, 3, 4, 5}, dense = {2, 3, 20}, gains = {4, 5};
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const Norm n(type, dense);
      const auto as = [&](const Value& value, const Extents& dims) {
        return Value(type, dims, value.numbers());
      };
      const auto forward = [&](const Extents& dims, const Extents& gain, std::int64_t count) {
        return run(set,
                   {"rmsnorm",
                    {as(n.x, dims), as(n.gain, gain), Value(type, dims), Value(statistics(type), n.lead)},
                    {{.f = eps}, {.f = 0.0}, {.i = count}}});
      };
      const std::vector<Value> one = forward(dense, {20}, 1), several = forward(apart, gains, 2);
      EXPECT_EQ(several[2].numbers(), one[2].numbers());
      EXPECT_EQ(several[3].bytes(), one[3].bytes());
      const auto input = [&](const Extents& dims, const Extents& gain, std::int64_t count) {
        return run(set,
                   {"rmsnorm_input_grad",
                    {as(n.dy, dims), as(n.x, dims), as(n.gain, gain), one[3], Value(), Value(type, dims)},
                    {{.f = 0.0}, {.i = count}}})[5]
            .numbers();
      };
      EXPECT_EQ(input(apart, gains, 2), input(dense, {20}, 1));
      const auto weight = [&](const Extents& dims, const Extents& gain, std::int64_t count) {
        return run(set, {"rmsnorm_weight_grad",
                         {as(n.dy, dims), as(n.x, dims), one[3], Value(statistics(type), gain)},
                         {{.i = count}}})[3]
            .numbers();
      };
      EXPECT_EQ(weight(apart, gains, 2), weight(dense, {20}, 1));
    }
}

TEST(Norms, RefuseMixedTypes) {
  const Norm n(DType::bf16, {2, 3, 8});
  const Value statistic(DType::f32, n.lead), gain(DType::f32, {8}), narrow(DType::bf16, {8});
  for (const InstructionSet& set : all_kernels()) {
    Call forward{
        "rmsnorm", {n.x, gain, Value(n.type, n.dims), statistic}, {{.f = eps}, {.f = 0.0}, {.i = 1}}};
    EXPECT_EQ(select_kernel(set, forward), nullptr) << "gain of another type";
    forward.operands = {n.x, n.gain, Value(n.type, n.dims), Value(DType::bf16, n.lead)};
    EXPECT_EQ(select_kernel(set, forward), nullptr) << "bf16 statistics";
    const Value wide(DType::f32, n.dims);
    Call weight{"rmsnorm_weight_grad", {wide, wide, statistic, narrow}, {{.i = 1}}};
    EXPECT_EQ(select_kernel(set, weight), nullptr) << "an accumulator narrower than what it adds up";
  }
}

}  // namespace
}  // namespace prun::test::norm_test
