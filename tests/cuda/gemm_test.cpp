#include "cuda/gemm.hpp"

#include "bias/cuda.hpp"
#include "tests/cuda/gemm_fixture.hpp"

namespace prun::test::gemm_test {
namespace {

using cuda::Epilogue;

// What is added to a product.
enum class Added { nothing, itself, residual };

// A product of random matrices and its exact result.
struct Case {
  Product product;
  std::vector<double> a, b, before, bias;  // a as [m, k] and b as [k, n], however they lie
  std::vector<double> sums, sizes;         // of a * b, and of the terms' absolute values

  explicit Case(const Product& p) : product(p) {
    a = numbers(p.input, p.m * p.k, 1), b = numbers(p.input, p.k * p.n, 2);
    before = numbers(p.output, p.m * p.n, 3), bias = numbers(p.output, p.n, 4);
    sums.resize(before.size()), sizes.resize(before.size());
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t l = 0; l < p.k; ++l) {
        const double x = a[at(i, l, p.k)];
        for (std::int64_t j = 0; j < p.n; ++j) {
          const double term = x * b[at(l, j, p.n)];
          sums[at(i, j, p.n)] += term, sizes[at(i, j, p.n)] += std::abs(term);
        }
      }
  }
  static std::size_t at(std::int64_t row, std::int64_t column, std::int64_t width) {
    return static_cast<std::size_t>(row * width + column);
  }
  static std::vector<double> numbers(DType type, std::int64_t count, unsigned seed) {
    return random_value(type, {count}, seed).numbers();
  }
};

// Rows of a matrix `stride` apart, transposed if asked for; 7 between them.
Value lay(DType type, const std::vector<double>& matrix, std::int64_t rows, std::int64_t columns,
          bool transposed, std::int64_t stride) {
  const std::int64_t lines = transposed ? columns : rows, width = transposed ? rows : columns;
  if (stride == 0) stride = width;
  Value value(type, {lines, stride});
  for (std::int64_t r = 0; r < lines; ++r)
    for (std::int64_t c = 0; c < stride; ++c)
      value.set(Case::at(r, c, stride),
                c >= width ? 7 : matrix[transposed ? Case::at(c, r, columns) : Case::at(r, c, columns)]);
  return value;
}

// A product on the device, with the operands that the case and `p` say.
struct OnGpu {
  Product product;
  OnDevice a, b, bias, before, d;

  OnGpu(const Case& c, const Product& p, Added added, std::int64_t offset, void* workspace)
      : product(p),
        a(lay(p.input, c.a, p.m, p.k, p.transpose_a, p.a_stride), offset),
        b(lay(p.input, c.b, p.k, p.n, p.transpose_b, p.b_stride), offset),
        bias(Value(p.output, {p.n}, c.bias), offset),
        before(lay(p.output, c.before, p.m, p.n, false, p.d_stride), offset),
        d(added == Added::itself ? OnDevice(before.value(), offset)
                                 : OnDevice(p.output, before.value().dims(), offset)),
        added_(added),
        workspace_(workspace) {
    product.alignment = cuda::alignment_of({a.as<void>(), b.as<void>(), bias.as<void>(), d.as<void>()});
  }
  cuda::GemmOperands operands() const {
    const void* c = added_ == Added::itself     ? d.as<void>()
                    : added_ == Added::residual ? before.as<void>()
                                                : nullptr;
    return {a.as<void>(), b.as<void>(), c, product.epilogue == Epilogue::bias ? bias.as<void>() : nullptr,
            d.as<void>(), workspace_};
  }

 private:
  Added added_;
  void* workspace_;
};

double rounding(DType type) { return type == DType::f64 ? 0x1p-53 : type == DType::f32 ? 0x1p-24 : 0x1p-9; }

// The distance from the exact result that rounding explains: each number once, sums as they grow by chance.
// What a bias or c is added to is perhaps rounded before, and may be larger than the result.
double bound(const Case& c, const Product& p, Added added, double want, std::size_t i) {
  const double sums = rounding(p.input == DType::f64 ? DType::f64 : DType::f32);
  const bool adds = added != Added::nothing || p.epilogue == Epilogue::bias;
  return 2 * rounding(p.output) * (std::abs(want) + (adds ? std::abs(c.sums[i]) + 2 : 0)) +
         4 * std::sqrt(static_cast<double>(p.k)) * sums * (c.sizes[i] + 2);
}

void expect_product(const Case& c, const Product& p, Added added, const Value& got) {
  const std::int64_t stride = p.d_stride ? p.d_stride : p.n;
  std::int64_t wrong = 0, outside = 0;
  double worst = 0;
  std::string example;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      const std::size_t here = Case::at(i, j, p.n);
      const double want = c.sums[here] + (added == Added::nothing ? 0 : c.before[here]) +
                          (p.epilogue == Epilogue::bias ? c.bias[static_cast<std::size_t>(j)] : 0);
      const double x = got[Case::at(i, j, stride)],
                   distance = std::abs(x - want) / bound(c, p, added, want, here);
      if (distance <= 1) continue;
      if (wrong++ == 0)
        example = "d[" + std::to_string(i) + ", " + std::to_string(j) + "] is " + std::to_string(x) +
                  ", should be " + std::to_string(want);
      worst = std::isnan(distance) ? distance : std::max(worst, distance);
    }
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = p.n; j < stride; ++j) {
      const double x = got[Case::at(i, j, stride)];
      outside += added == Added::itself ? x != 7 : !std::isnan(x);
    }
  EXPECT_EQ(wrong, 0) << text_of(p) << ": of " << p.m * p.n << " elements; " << example
                      << "; the worst is off by " << worst << " times what rounding explains";
  EXPECT_EQ(outside, 0) << text_of(p) << ": elements changed between the rows";
}

class Products : public GemmTest {
 protected:
  void expect_right(const Case& c, const Product& p, Added added, std::int64_t offset) const {
    SCOPED_TRACE(added == Added::nothing ? "d =" : added == Added::itself ? "d +=" : "d = c +");
    OnGpu on(c, p, added, offset, workspace());
    gemm().run(gemm().prepare(on.product), on.operands(), nullptr);
    expect_product(c, on.product, added, on.d.value());
  }
};

struct Types {
  DType input, output;
};
constexpr Types all_types[] = {{DType::f64, DType::f64},   {DType::f32, DType::f32},
                               {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                               {DType::f16, DType::f16},   {DType::f16, DType::f32}};

struct Extents {
  std::int64_t m, n, k;
};
const std::vector<Extents> odd_extents = {{1, 1, 1},    {1, 8, 16},    {33, 17, 65},  {64, 96, 128},
                                          {5, 1001, 7}, {129, 72, 31}, {3, 50257, 9}, {40, 24, 1027}};

template <class Body>
void for_cases(const std::vector<Extents>& extents, Body body) {
  for (const Types& types : all_types)
    for (const Extents& e : extents)
      body(Case({.m = e.m, .n = e.n, .k = e.k, .input = types.input, .output = types.output}));
}

TEST_F(Products, EveryTypeTransposedOrNotAlignedOrNot) {
  for_cases(odd_extents, [&](const Case& c) {
    for (int way = 0; way < 8; ++way) {
      Product p = c.product;
      p.transpose_a = way & 1, p.transpose_b = way & 2;
      expect_right(c, p, Added::nothing, way & 4 ? 1 : 0);
    }
  });
}

TEST_F(Products, OntoWhatIsThereOrAResidual) {
  for_cases(odd_extents, [&](const Case& c) {
    for (const Added added : {Added::itself, Added::residual})
      for (const bool transposed : {false, true})
        for (std::int64_t offset : {0, 1}) {
          Product p = c.product;
          p.transpose_a = transposed, p.transpose_b = !transposed;
          expect_right(c, p, added, offset);
        }
  });
}

TEST_F(Products, WithABias) {
  for_cases(odd_extents, [&](const Case& c) {
    for (const Added added : {Added::nothing, Added::itself, Added::residual})
      for (std::int64_t offset : {0, 1}) {
        Product p = c.product;
        p.transpose_b = true, p.epilogue = Epilogue::bias;
        expect_right(c, p, added, offset);
      }
  });
}

TEST_F(Products, RowsThatLieApart) {
  for_cases({{33, 17, 65}, {64, 96, 128}, {2, 50257, 16}}, [&](const Case& c) {
    for (int way = 0; way < 4; ++way)
      for (const Added added : {Added::nothing, Added::itself}) {
        Product p = c.product;
        p.transpose_a = way & 1, p.transpose_b = way & 2;
        p.a_stride = (way & 1 ? p.m : p.k) + 3, p.b_stride = (way & 2 ? p.k : p.n) + 8;
        p.d_stride = (p.n + 63) / 64 * 64;
        expect_right(c, p, added, 0);
      }
  });
}

TEST_F(Products, OfSeveralMatricesAreThoseOfEach) {
  constexpr std::int64_t m = 24, n = 40, k = 72, count = 5;
  for (const Types& types : all_types)
    for (const bool transposed : {false, true}) {
      const Value a = random_value(types.input, {count * m * k}, 1),
                  b = random_value(types.input, {count * k * n}, 2);
      OnDevice on_a(a), on_b(b), one(types.output, {m * n}), all(types.output, {count * m * n});
      Product p = {
          .m = m, .n = n, .k = k, .transpose_b = transposed, .input = types.input, .output = types.output};
      p.alignment = 16;
      const auto from = [&](const OnDevice& x, std::int64_t elements) {
        return x.as<const char>() + elements * size_of(types.input);
      };
      p.batch = count;
      gemm().run(gemm().prepare(p),
                 {from(on_a, 0), from(on_b, 0), nullptr, nullptr, all.as<void>(), workspace()}, nullptr);
      const Value together = all.value();
      p.batch = 1;
      for (std::int64_t matrix = 0; matrix < count; ++matrix) {
        gemm().run(gemm().prepare(p),
                   {from(on_a, matrix * m * k), from(on_b, matrix * k * n), nullptr, nullptr, one.as<void>(),
                    workspace()},
                   nullptr);
        const Value alone = one.value();
        for (std::size_t i = 0; i < alone.size(); ++i)
          ASSERT_NEAR(together[static_cast<std::size_t>(matrix * m * n) + i], alone[i],
                      32 * rounding(types.output) * (1 + std::abs(alone[i])))
              << text_of(p) << ' ' << matrix << ' ' << i;
      }
    }
}

// Numbers that TF32 would round to 1: every sum is exact in fp32.
TEST_F(Products, Fp32IsNotTf32) {
  for (const Extents& e : {Extents{256, 256, 256}, Extents{64, 1024, 512}, Extents{1024, 64, 4096}}) {
    const Product p = {.m = e.m, .n = e.n, .k = e.k, .input = DType::f32, .output = DType::f32};
    const auto filled = [](std::int64_t rows, std::int64_t columns, double x) {
      return Value(DType::f32, {rows, columns},
                   std::vector<double>(static_cast<std::size_t>(rows * columns), x));
    };
    const OnDevice a(filled(e.m, e.k, 1 + 0x1p-11)), b(filled(e.k, e.n, 1));
    OnDevice d(DType::f32, {e.m, e.n});
    cuda::GemmPlan plan = gemm().prepare(p);
    const cuda::GemmOperands operands = {a.as<void>(), b.as<void>(), nullptr,
                                         nullptr,      d.as<void>(), workspace()};
    gemm().tune(plan, operands, nullptr);
    gemm().run(plan, operands, nullptr);
    const double k = static_cast<double>(e.k);
    EXPECT_EQ(d.value().bytes(), filled(e.m, e.n, k + k * 0x1p-11).bytes()) << text_of(p);
  }
}

// A long sum of few elements tempts to split it.
TEST_F(Products, EveryAlgorithmThatTuningKeepsGivesTheSameBitsAgainAndTheRightOnes) {
  for (const Types& types : all_types) {
    const Case c(
        {.m = 96, .n = 64, .k = 5000, .transpose_a = true, .input = types.input, .output = types.output});
    OnGpu on(c, c.product, Added::nothing, 0, workspace());
    cuda::GemmPlan plan = gemm().prepare(on.product);
    for (const int candidates : {1, 4, 32}) {
      const cuda::Tuning found = gemm().tune(plan, on.operands(), nullptr, candidates);
      EXPECT_GE(found.candidates, 1);
      EXPECT_LE(found.candidates, candidates);
      EXPECT_LE(found.best_seconds, found.first_seconds);
      gemm().run(plan, on.operands(), nullptr);
      const Value once = on.d.value();
      expect_product(c, c.product, Added::nothing, once);
      for (int again = 0; again < 5; ++again) {
        gemm().run(plan, on.operands(), nullptr);
        EXPECT_EQ(on.d.value().bytes(), once.bytes()) << text_of(c.product);
      }
    }
  }
}

TEST_F(Products, AnAlgorithmCanBeTakenFromItsText) {
  const Case c({.m = 256, .n = 512, .k = 768});
  OnGpu on(c, c.product, Added::nothing, 0, workspace());
  cuda::GemmPlan tuned = gemm().prepare(on.product), other = gemm().prepare(on.product);
  gemm().tune(tuned, on.operands(), nullptr);
  const std::string algorithm = tuned.algorithm();
  ASSERT_TRUE(gemm().choose(other, algorithm)) << algorithm;
  EXPECT_EQ(other.algorithm(), algorithm);
  gemm().run(tuned, on.operands(), nullptr);
  const Value once = on.d.value();
  gemm().run(other, on.operands(), nullptr);
  EXPECT_EQ(on.d.value().bytes(), once.bytes());
  for (const std::string& bad : {std::string(), algorithm.substr(1), std::string(algorithm.size(), 'x')}) {
    EXPECT_FALSE(gemm().choose(other, bad)) << bad;
    EXPECT_EQ(other.algorithm(), algorithm) << "kept";
  }
}

TEST_F(Products, RunningTakesNoMemory) {
  const Case c({.m = 256, .n = 512, .k = 768, .epilogue = Epilogue::bias});
  OnGpu on(c, c.product, Added::nothing, 0, workspace());
  const cuda::GemmPlan plan = gemm().prepare(on.product);
  const auto free_bytes = [] {
    std::size_t free = 0, total = 0;
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaMemGetInfo(&free, &total));
    return free;
  };
  gemm().run(plan, on.operands(), nullptr);  // loads the kernel
  const std::size_t before = free_bytes();
  for (int i = 0; i < 100; ++i) gemm().run(plan, on.operands(), nullptr);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(Products, OperandsThatDoNotFitThePlanAreRefused) {
  const Case c({.m = 16, .n = 16, .k = 16});
  OnGpu on(c, c.product, Added::nothing, 0, workspace());
  const cuda::GemmPlan plan = gemm().prepare(on.product);
  cuda::GemmOperands shifted = on.operands(), biased = on.operands();
  shifted.a = on.a.as<char>() + 2;
  biased.bias = on.bias.as<void>();
  EXPECT_THROW(gemm().run(plan, shifted, nullptr), Error);
  EXPECT_THROW(gemm().run(plan, biased, nullptr), Error);
  EXPECT_THROW(gemm().prepare({.m = 0, .n = 1, .k = 1}), Error);
  EXPECT_THROW(gemm().prepare({.m = 1, .n = 1, .k = 1, .input = DType::f32}), Error);
}

TEST_F(Products, TheLibraryNamesItselfAndTheDevice) {
  EXPECT_TRUE(gemm().version().starts_with("cuBLASLt 1")) << gemm().version();
  EXPECT_TRUE(gemm().identity().ends_with(", " + gemm().version())) << gemm().identity();
  EXPECT_NE(gemm().path().find("libcublasLt.so"), std::string::npos) << gemm().path();
}

TEST_F(Products, ABiasInFrontOfTheProduct) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const Value x = random_value(dtype_of<T>(), {rows, width}, 1),
                bias = random_value(dtype_of<T>(), {width}, 2);
    Value sums = x, alone = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double b = bias[i % bias.size()];
      alone.set(i, b), sums.set(i, b + x[i]);
    }
    const OnDevice added(bias, offset);
    OnDevice on(x, offset), y(dtype_of<T>(), {rows, width}, offset);
    cuda::add_bias<T>(nullptr, added.as<T>(), y.as<T>(), rows, width, width, nullptr);
    EXPECT_EQ(y.value().bytes(), alone.bytes());
    cuda::add_bias<T>(on.as<T>(), added.as<T>(), on.as<T>(), rows, width, width, nullptr);
    EXPECT_EQ(on.value().bytes(), sums.bytes()) << "in place";
  });
}

// The other epilogues, which the library may not have: the tests are then skipped and say what it said.
class Epilogues : public GemmTest {
 protected:
  static constexpr std::int64_t m = 192, n = 320, k = 256;

  // A product of these, on the device.
  struct Operands {
    OnDevice a, b, d;
    explicit Operands(const Product& p)
        : a(lay(p.input, Case::numbers(p.input, m * k, 1), m, k, p.transpose_a, 0)),
          b(lay(p.input, Case::numbers(p.input, k * n, 2), k, n, p.transpose_b, 0)),
          d(p.output, {m, n}) {}
  };

  // With every algorithm that there is for it, or none: then the reason.
  std::string run(const Product& p, const Operands& o, const void* bias, void* aux) const {
    try {
      cuda::GemmPlan plan = gemm().prepare(p);
      const cuda::GemmOperands operands = {o.a.as<void>(), o.b.as<void>(), nullptr, bias,
                                           o.d.as<void>(), workspace(),    aux};
      gemm().tune(plan, operands, nullptr);
      gemm().run(plan, operands, nullptr);
      return {};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      return error.what();
    }
  }
  static std::vector<double> sums(const Product& p) { return Case(p).sums; }
};

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

TEST_F(Epilogues, BiasAndGelu) {
  const Product p = {.m = m, .n = n, .k = k, .transpose_b = true, .epilogue = Epilogue::bias_gelu};
  Operands on(p);
  const Value bias = random_value(DType::bf16, {n}, 4);
  OnDevice biases(bias), before(DType::bf16, {m, n});
  const std::string reason = run(p, on, biases.as<void>(), before.as<void>());
  if (!reason.empty()) GTEST_SKIP() << reason;
  std::vector<double> x = sums(p), y;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[i % n], y.push_back(gelu(x[i]));
  expect_close(before.value(), x, tolerance(DType::bf16), "before gelu");
  expect_close(on.d.value(), y, tolerance(DType::bf16), "after gelu");
}

TEST_F(Epilogues, GeluGradient) {
  const Product p = {.m = m, .n = n, .k = k, .epilogue = Epilogue::gelu_grad};
  Operands on(p);
  const Value x = random_value(DType::bf16, {m, n}, 5, 3);
  OnDevice before(x);
  const std::string reason = run(p, on, nullptr, before.as<void>());
  if (!reason.empty()) GTEST_SKIP() << reason;
  std::vector<double> dx = sums(p);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] *= gelu_slope(x[i]);
  expect_close(on.d.value(), dx, tolerance(DType::bf16), "gradient");
  EXPECT_EQ(before.value().bytes(), x.bytes());
}

TEST_F(Epilogues, GradientOfABiasBesideThatOfTheWeight) {
  const std::vector<double> dy = Case::numbers(DType::bf16, m * k, 1);
  std::vector<double> want(m);
  for (std::size_t i = 0; i < dy.size(); ++i) want[i / k] += dy[i];
  for (const DType type : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(type));
    const Product p = {
        .m = m, .n = n, .k = k, .transpose_a = true, .output = type, .epilogue = Epilogue::bias_grad};
    Operands on(p);
    OnDevice dbias(type, {m});
    const std::string reason = run(p, on, nullptr, dbias.as<void>());
    if (!reason.empty()) GTEST_SKIP() << reason;
    const double close = type == DType::bf16 ? close_sums<bf16>(8) : close_sums<float>(8);
    expect_close(on.d.value(), sums(p), close, "dweight");
    expect_close(dbias.value(), want, close, "dbias");
  }
}

// What needs no GPU.
TEST(ProductText, NamesAllThatAnAlgorithmDependsOn) {
  const Product plain = {.m = 65536, .n = 2304, .k = 768, .transpose_b = true};
  EXPECT_EQ(text_of(plain), "bf16 x bf16 -> bf16, m 65536, n 2304, k 768, b transposed");
  const Product all = {.m = 1,
                       .n = 2,
                       .k = 3,
                       .transpose_a = true,
                       .output = DType::f32,
                       .epilogue = Epilogue::bias,
                       .a_stride = 4,
                       .b_stride = 5,
                       .d_stride = 6,
                       .alignment = 16};
  EXPECT_EQ(text_of(all),
            "bf16 x bf16 -> fp32, m 1, n 2, k 3, a transposed, bias, a's rows 4 apart, b's rows 5 apart, d's "
            "rows 6 apart, aligned to 16");
}

TEST(ProductText, AlignmentIsThatOfTheWorstPointer) {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
  EXPECT_EQ(cuda::alignment_of({at(1 << 20), nullptr}), 256);
  EXPECT_EQ(cuda::alignment_of({at(1 << 20), at((1 << 20) + 48)}), 16);
  EXPECT_EQ(cuda::alignment_of({at(1026)}), 2);
}

TEST(ProductsWithoutAGpu, AreRefusedInASentence) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) GTEST_SKIP() << "this machine has a GPU";
  try {
    const cuda::Gemm gemm;
    ADD_FAILURE() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("no GPU to multiply matrices on: ") ||
                message.starts_with("cuBLASLt was not found"))
        << message;
  }
}

}  // namespace
}  // namespace prun::test::gemm_test
