// linear and its gradients against sums in double, for every type and instruction set.
#include "tests/support/kernel_call.hpp"

PRUN_TEST_KERNELS(linear_kernels, linear_test)

namespace prun::test::linear_test {
namespace {

using prun::Attr;
using prun::DType;
using prun::test::expect_close;
using prun::test::find_kernel;
using prun::test::InstructionSet;
using prun::test::launch;
using prun::test::shape_of;
using prun::test::Value;

using Extents = std::vector<std::int64_t>;

struct Case {
  Extents lead, out, in;
};

const std::vector<Case> cases = {
    {{3}, {5}, {7}},
    {{2, 33}, {65}, {129}},
    {{1}, {1}, {1}},
    {{2, 17}, {3, 5, 9}, {40}},
    {{5, 13}, {31}, {3, 4, 5}},
    {{2, 3, 4}, {70}, {6, 11}},
    {{4, 40}, {100}, {700}},
    {{1, 300}, {17, 3}, {2, 33}},
};

std::int64_t product(const Extents& e) {
  std::int64_t n = 1;
  for (const std::int64_t extent : e) n *= extent;
  return n;
}

Extents joined(Extents a, const Extents& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

double tolerance(DType type) {
  return type == DType::f64 ? 1e-12 : type == DType::f32 ? 2e-5 : 8e-3;  // bf16 keeps 8 bits
}

DType sum_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// One case's operands, x [m, k], weight [n, k], and results in double.
struct Problem {
  DType type;
  std::size_t m, n, k;
  std::vector<Attr> attrs;
  Value x, weight, bias, dy, sums;

  Problem(const Case& c, DType t)
      : type(t),
        m(static_cast<std::size_t>(product(c.lead))),
        n(static_cast<std::size_t>(product(c.out))),
        k(static_cast<std::size_t>(product(c.in))),
        attrs{Attr{.i = static_cast<std::int64_t>(c.in.size())}, Attr{.i = 0}},
        x(Value::random(t, joined(c.lead, c.in), 1)),
        weight(Value::random(t, joined(c.out, c.in), 2)),
        bias(Value::random(t, c.out, 3)),
        dy(Value::random(t, joined(c.lead, c.out), 4)),
        sums(Value::random(sum_type(t), joined(c.out, c.in), 5)) {}

  std::vector<double> y(bool with_bias) const {
    std::vector<double> result(m * n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = with_bias ? bias[j] : 0;
        for (std::size_t p = 0; p < k; ++p) sum += x[i * k + p] * weight[j * k + p];
        result[i * n + j] = sum;
      }
    return result;
  }
  std::vector<double> dx() const {
    std::vector<double> result(m * k);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t p = 0; p < k; ++p) result[i * k + p] += dy[i * n + j] * weight[j * k + p];
    return result;
  }
  std::vector<double> dweight() const {
    std::vector<double> result = sums.numbers();
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t p = 0; p < k; ++p) result[j * k + p] += dy[i * n + j] * x[i * k + p];
    return result;
  }
};

std::string label(const InstructionSet& set, DType type, std::size_t index, const char* what) {
  return std::string(set.name) + " " + name_of(type) + " case " + std::to_string(index) + " " + what;
}

template <class Check>
void for_all(const Check& check) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (std::size_t index = 0; index < cases.size(); ++index) {
      const Problem problem(cases[index], type);
      for (const InstructionSet& set : all_kernels()) check(set, problem, cases[index], index);
    }
}

TEST(Linear, ForwardMatchesDouble) {
  for_all([](const InstructionSet& set, Problem p, const Case& c, std::size_t index) {
    Value absent;
    for (Value* bias : {&p.bias, &absent}) {
      Value y(p.type, joined(c.lead, c.out));
      launch(find_kernel(set, "linear"), {&p.x, &p.weight, bias, &y}, p.attrs, 2);
      expect_close(y, p.y(bias == &p.bias), tolerance(p.type), label(set, p.type, index, "y"));
    }
  });
}

TEST(Linear, InputGradMatchesDouble) {
  for_all([](const InstructionSet& set, Problem p, const Case& c, std::size_t index) {
    Value dx(p.type, joined(c.lead, c.in));
    launch(find_kernel(set, "linear_input_grad"), {&p.dy, &p.weight, &dx}, p.attrs, 2);
    expect_close(dx, p.dx(), tolerance(p.type), label(set, p.type, index, "dx"));
  });
}

TEST(Linear, GeluGradMatchesDouble) {
  const auto slope = [](double x) {
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = std::tanh(u);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
  };
  for_all([&](const InstructionSet& set, Problem p, const Case& c, std::size_t index) {
    Value x = Value::random(p.type, joined(c.lead, c.in), 31), dx(p.type, joined(c.lead, c.in));
    std::vector<double> want = p.dx();
    for (std::size_t i = 0; i < want.size(); ++i) want[i] *= slope(x[i]);
    launch(find_kernel(set, "linear_gelu_grad"), {&p.dy, &p.weight, &x, &dx}, p.attrs, 2);
    expect_close(dx, want, 2 * tolerance(p.type), label(set, p.type, index, "dx"));
  });
}

TEST(Linear, WeightGradAddsToItsAccumulator) {
  for_all([](const InstructionSet& set, Problem p, const Case&, std::size_t index) {
    const std::vector<double> want = p.dweight();
    launch(find_kernel(set, "linear_weight_grad"), {&p.x, &p.dy, &p.sums}, p.attrs, 2);
    const double allowed = p.type == DType::f64 ? 1e-12 : 2e-5;  // sums are float for bf16 too
    expect_close(p.sums, want, allowed, label(set, p.type, index, "dweight"));
  });
}

TEST(Linear, WeightGradRoundsToANarrowAccumulator) {
  for_all([](const InstructionSet& set, Problem p, const Case&, std::size_t index) {
    if (p.type != DType::bf16) return;
    p.sums = Value(DType::bf16, p.sums.dims(), p.sums.numbers());
    const std::vector<double> want = p.dweight();
    launch(find_kernel(set, "linear_weight_grad"), {&p.x, &p.dy, &p.sums}, p.attrs, 2);
    expect_close(p.sums, want, tolerance(DType::bf16), label(set, p.type, index, "dweight"));
  });
}

TEST(Linear, WeightGradBeginsItsAccumulator) {
  for_all([](const InstructionSet& set, Problem p, const Case&, std::size_t index) {
    p.sums = Value(sum_type(p.type), p.sums.dims());
    Value begun = p.sums;
    for (std::size_t i = 0; i < begun.size(); ++i) begun.set(i, std::nan(""));
    launch(find_kernel(set, "linear_weight_grad"), {&p.x, &p.dy, &p.sums}, p.attrs, 2);
    launch(find_kernel(set, "linear_weight_grad"), {&p.x, &p.dy, &begun}, p.attrs, 2, 1u << 2);
    EXPECT_EQ(begun.bytes(), p.sums.bytes()) << label(set, p.type, index, "dweight");
  });
}

// All results of one run, as bytes.
std::vector<std::vector<char>> run_all(const InstructionSet& set, Problem p, const Case& c, int threads) {
  Value y(p.type, joined(c.lead, c.out)), dx(p.type, joined(c.lead, c.in));
  launch(find_kernel(set, "linear"), {&p.x, &p.weight, &p.bias, &y}, p.attrs, threads);
  launch(find_kernel(set, "linear_input_grad"), {&p.dy, &p.weight, &dx}, p.attrs, threads);
  launch(find_kernel(set, "linear_weight_grad"), {&p.x, &p.dy, &p.sums}, p.attrs, threads);
  return {y.bytes(), dx.bytes(), p.sums.bytes()};
}

TEST(Linear, BitsDoNotDependOnThreads) {
  for_all([](const InstructionSet& set, const Problem& p, const Case& c, std::size_t index) {
    const auto alone = run_all(set, p, c, 1);
    for (const int threads : {2, 3})
      EXPECT_EQ(run_all(set, p, c, threads), alone) << label(set, p.type, index, "threads ") << threads;
  });
}

TEST(Linear, BitsDoNotDependOnBatching) {
  for_all([](const InstructionSet& set, const Problem& p, const Case& c, std::size_t index) {
    const auto whole = run_all(set, p, c, 2);
    std::vector<char> y, dx;
    for (std::int64_t i = 0; i < c.lead[0]; ++i) {
      Problem part = p;
      part.x = p.x.slice(i), part.dy = p.dy.slice(i);
      Case one = c;
      one.lead[0] = 1;
      const auto results = run_all(set, part, one, 2);
      y.insert(y.end(), results[0].begin(), results[0].end());
      dx.insert(dx.end(), results[1].begin(), results[1].end());
    }
    EXPECT_EQ(y, whole[0]) << label(set, p.type, index, "y");
    EXPECT_EQ(dx, whole[1]) << label(set, p.type, index, "dx");
  });
}

TEST(Linear, MixedTypesAreRefused) {
  Value x(DType::f32, {4, 8}), weight(DType::bf16, {3, 8}), bias, y(DType::f32, {4, 3});
  const Attr attrs[] = {Attr{.i = 1}, Attr{.i = 0}};
  for (const InstructionSet& set : all_kernels())
    EXPECT_EQ(find_kernel(set, "linear").select(shape_of({&x, &weight, &bias, &y}, attrs)), nullptr);
}

}  // namespace
}  // namespace prun::test::linear_test
