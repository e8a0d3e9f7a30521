// gelu, swiglu, geglu and their gradients against the formulas in double.
#include <limits>
#include <numbers>

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(activation_kernels, activation_test)

namespace prun::test::activation_test {
namespace {

using Extents = std::vector<std::int64_t>;
constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr double slope = 0.79788456080286535588;  // sqrt(2 / pi)

double gelu(double x) { return 0.5 * x * (1 + std::tanh(slope * (x + 0.044715 * x * x * x))); }
double gelu_derivative(double x) {
  const double t = std::tanh(slope * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope * (1 + 3 * 0.044715 * x * x);
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_derivative(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

template <class Body>
void for_cases(const std::vector<Extents>& shapes, Body body) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (const Extents& dims : shapes) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " width " + std::to_string(dims.back()));
        body(set, type, dims);
      }
}

TEST(Gelu, MatchesTheFormula) {
  for_cases({{1}, {3, 5, 7}, {2, 3, 64}, {3, 41, 101}},
            [](const InstructionSet& set, DType type, Extents dims) {
              const Call call{"gelu", {random_value(type, dims, 1, 8), Value(type, dims)}};
              const Value& x = call.operands[0];
              std::vector<double> y(x.size());
              for (std::size_t i = 0; i < y.size(); ++i) y[i] = gelu(x[i]);
              expect_close(run(set, call)[1], y, tolerance(type), "y");
              expect_batch_free(set, call, {0, 1});
            });
}

TEST(Gelu, GradientMatchesTheFormula) {
  for_cases(
      {{1}, {3, 5, 7}, {2, 3, 64}, {3, 41, 101}}, [](const InstructionSet& set, DType type, Extents dims) {
        const Call call{"gelu_grad",
                        {random_value(type, dims, 2), random_value(type, dims, 1, 8), Value(type, dims)}};
        const Value &dy = call.operands[0], &x = call.operands[1];
        std::vector<double> dx(x.size());
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * gelu_derivative(x[i]);
        expect_close(run(set, call)[2], dx, tolerance(type), "dx");
        expect_batch_free(set, call, {0, 1, 2});
      });
}

TEST(Gelu, OfErfMatchesTheFormula) {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  for_cases({{1}, {3, 5, 7}, {2, 3, 64}, {3, 41, 101}},
            [&](const InstructionSet& set, DType type, Extents dims) {
              const Call forward{"gelu_erf", {random_value(type, dims, 1, 8), Value(type, dims)}};
              const Call backward{"gelu_erf_grad",
                                  {random_value(type, dims, 2), forward.operands[0], Value(type, dims)}};
              const Value &x = forward.operands[0], &dy = backward.operands[0];
              std::vector<double> y(x.size()), dx(x.size());
              for (std::size_t i = 0; i < y.size(); ++i) {
                const double density = std::exp(-0.5 * x[i] * x[i]) / std::sqrt(2 * std::numbers::pi);
                y[i] = x[i] * below(x[i]);
                dx[i] = dy[i] * (below(x[i]) + x[i] * density);
              }
              expect_close(run(set, forward)[1], y, tolerance(type), "y");
              expect_close(run(set, backward)[2], dx, tolerance(type), "dx");
            });
}

TEST(Gelu, FarOutIsTheIdentityOrZeroAndNaNStays) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const InstructionSet& set : all_kernels())
    for (DType type : types) {
      const Value y = run(set, {"gelu", {Value(type, {4}, {64, -64, nan, 0}), Value(type, {4})}})[1];
      EXPECT_EQ(y[0], 64);
      EXPECT_NEAR(y[1], 0, 1e-30);
      EXPECT_TRUE(std::isnan(y[2]));
      EXPECT_EQ(y[3], 0);
    }
}

// A gate's function and its derivative.
struct GatedUnit {
  const char* kind;
  double (*value)(double);
  double (*derivative)(double);
};
double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
double gelu_erf_derivative(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
         x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
}
constexpr GatedUnit gated_units[] = {{"swiglu", silu, silu_derivative},
                                     {"geglu", gelu, gelu_derivative},
                                     {"geglu_erf", gelu_erf, gelu_erf_derivative}};

template <class Body>
void for_gated(Body body) {
  for (const GatedUnit& unit : gated_units)
    for_cases({{2, 2, 1}, {3, 5, 2, 7}, {2, 3, 2, 64}, {2, 3, 2, 131}},
              [&](const InstructionSet& set, DType type, const Extents& dims) {
                SCOPED_TRACE(unit.kind);
                Extents out = dims;
                out.erase(out.end() - 2);
                body(unit, set, type, dims, out);
              });
}

TEST(GatedUnits, MatchTheFormula) {
  for_gated([](const GatedUnit& unit, const InstructionSet& set, DType type, const Extents& dims,
               const Extents& out) {
    const Call call{unit.kind, {random_value(type, dims, 1, 8), Value(type, out)}};
    const Value& x = call.operands[0];
    const auto width = static_cast<std::size_t>(dims.back());
    std::vector<double> y(x.size() / 2);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t gate = i / width * 2 * width + i % width;
      y[i] = unit.value(x[gate]) * x[gate + width];
    }
    expect_close(run(set, call)[1], y, tolerance(type), "y");
    expect_batch_free(set, call, {0, 1});
  });
}

TEST(GatedUnits, GradientsMatchTheFormula) {
  for_gated([](const GatedUnit& unit, const InstructionSet& set, DType type, const Extents& dims,
               const Extents& out) {
    const Call call{std::string(unit.kind) + "_grad",
                    {random_value(type, out, 2), random_value(type, dims, 1, 8), Value(type, dims)}};
    const Value &dy = call.operands[0], &x = call.operands[1];
    const auto width = static_cast<std::size_t>(dims.back());
    std::vector<double> dx(x.size());
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const std::size_t gate = i / width * 2 * width + i % width;
      dx[gate] = dy[i] * x[gate + width] * unit.derivative(x[gate]);
      dx[gate + width] = dy[i] * unit.value(x[gate]);
    }
    expect_close(run(set, call)[2], dx, tolerance(type), "dx");
    expect_batch_free(set, call, {0, 1, 2});
  });
}

// With up = 1, swiglu / gate is the sigmoid: this walks the exponential through its whole range.
TEST(SwiGlu, SigmoidKeepsItsRelativePrecision) {
  constexpr std::int64_t width = 20000;
  Value x(DType::f32, {1, 2, width});
  for (std::size_t i = 0; i < width; ++i) {
    x.set(i, -79.5 + 159.0 * (static_cast<double>(i) + 0.5) / width);
    x.set(width + i, 1);
  }
  for (const InstructionSet& set : all_kernels()) {
    const Value y = run(set, {"swiglu", {x, Value(DType::f32, {1, width})}})[1];
    double worst = 0;
    for (std::size_t i = 0; i < width; ++i) worst = std::max(worst, std::abs(y[i] / silu(x[i]) - 1));
    EXPECT_LT(worst, 4 * 0x1p-23) << set.name;
  }
}

}  // namespace
}  // namespace prun::test::activation_test
