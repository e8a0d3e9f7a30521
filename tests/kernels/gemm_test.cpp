// The CPU matrix multiply against a plain triple loop, and its promise that bits depend on k alone.
// Compiled once per instruction set with PRUN_ISA (and no -m flags: it only calls). Skips what the machine
// lacks.
#include "../../kernels/cpu/gemm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "../support/test_workers.hpp"

namespace prun::test::gemm_test {
namespace {

using prun::bf16;
using prun::Workers;
using prun::cpu::PRUN_ISA::gemm;
using prun::cpu::PRUN_ISA::gemm_serial;
using prun::cpu::PRUN_ISA::gemm_workspace;
using prun::cpu::PRUN_ISA::Matrix;
using prun::cpu::PRUN_ISA::row_major;
using prun::test::TestWorkers;

using Index = std::int64_t;

bool machine_has_isa() {
#if PRUN_ISA_RANK == 2
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#elif PRUN_ISA_RANK == 1
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

struct Shape {
  Index m, n, k;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false, bias = false;
  Index gap = 0;  // elements between the rows of each matrix
};

std::string describe(const Shape& s) {
  return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) +
         (s.a_transposed ? " aT" : "") + (s.b_transposed ? " bT" : "") + (s.accumulate ? " accumulate" : "") +
         (s.bias ? " bias" : "") + " gap " + std::to_string(s.gap);
}

// A matrix in memory of its own; what lies between its rows holds `guard`.
template <class T>
struct Owned {
  static constexpr float guard = 1024;
  std::vector<T> values;
  Matrix<T> view;

  Owned(Index rows, Index cols, bool transposed, Index gap, unsigned seed)
      : values(static_cast<std::size_t>((transposed ? cols : rows) * ((transposed ? rows : cols) + gap)),
               static_cast<T>(guard)),
        view(transposed ? row_major(values.data(), cols, rows, rows + gap).transposed()
                        : row_major(values.data(), rows, cols, cols + gap)) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) at(i, j) = static_cast<T>(draw(generator));
  }
  Owned(const Owned& other) : values(other.values), view(other.view) { view.data = values.data(); }
  Owned& operator=(const Owned&) = delete;

  T& at(Index i, Index j) { return view.data[i * view.row_stride + j * view.col_stride]; }
  double operator()(Index i, Index j) const {
    return static_cast<double>(view.data[i * view.row_stride + j * view.col_stride]);
  }
};

// A workspace of exactly the promised size, at an odd address, with a guard behind it.
class Workspace {
 public:
  Workspace(std::int32_t threads, const Shape& s, Index compute_size)
      : size_(static_cast<std::size_t>(gemm_workspace(threads, s.m, s.n, s.k, compute_size))),
        bytes_(size_ + 1 + guard_, 0x5a) {}
  void* data() { return bytes_.data() + 1; }
  bool intact() const {
    return std::all_of(bytes_.end() - guard_, bytes_.end(), [](unsigned char byte) { return byte == 0x5a; });
  }

 private:
  static constexpr std::ptrdiff_t guard_ = 256;
  std::size_t size_;
  std::vector<unsigned char> bytes_;
};

template <class A>
constexpr Index compute_size = std::is_same_v<A, double> ? 8 : 4;

template <class A, class B, class C>
struct Problem {
  Shape shape;
  Owned<A> a;
  Owned<B> b;
  Owned<C> c;
  std::vector<A> bias;

  explicit Problem(const Shape& s)
      : shape(s),
        a(s.m, s.k, s.a_transposed, s.gap, 1),
        b(s.k, s.n, s.b_transposed, s.gap, 2),
        c(s.m, s.n, false, s.gap, 3),
        bias(static_cast<std::size_t>(s.n)) {
    for (Index j = 0; j < s.n; ++j)
      bias[static_cast<std::size_t>(j)] = static_cast<A>(0.5f + 0.25f * static_cast<float>(j % 7));
  }

  Owned<C> run(const Workers& workers) const {
    Owned<C> result = c;
    Workspace workspace(workers.count, shape, compute_size<A>);
    gemm<A, B, C>(workers, a.view, b.view, result.view, shape.accumulate, shape.bias ? bias.data() : nullptr,
                  workspace.data());
    EXPECT_TRUE(workspace.intact()) << describe(shape);
    return result;
  }

  // What c should be, and in `scale` the sum of magnitudes that rounding errors are proportional to.
  double expected(Index i, Index j, double alpha, double& scale) const {
    long double sum = 0;
    scale = 0;
    for (Index p = 0; p < shape.k; ++p) {
      sum += static_cast<long double>(a(i, p)) * b(p, j) * alpha;
      scale += std::abs(a(i, p) * b(p, j) * alpha);
    }
    if (shape.accumulate) sum += c(i, j), scale += std::abs(c(i, j));
    if (shape.bias) sum += static_cast<double>(bias[static_cast<std::size_t>(j)]), scale += 2;
    return static_cast<double>(sum);
  }

  void check(const Owned<C>& result, double alpha) const {
    const double arithmetic = std::is_same_v<A, double> ? 0x1p-50 : 0x1p-21;
    const double rounding = std::is_same_v<C, bf16> ? 0x1p-8 : 0;
    int reported = 0;
    for (Index i = 0; i < shape.m; ++i)
      for (Index j = 0; j < shape.n; ++j) {
        double scale = 0;
        const double want = expected(i, j, alpha, scale);
        const double allowed = arithmetic * scale + rounding * std::abs(want) * (1 + 0x1p-6);
        if (std::abs(result(i, j) - want) <= allowed) continue;
        if (++reported < 4)
          ADD_FAILURE() << describe(shape) << " at " << i << "," << j << ": " << result(i, j) << ", not "
                        << want;
      }
    EXPECT_EQ(reported, 0) << describe(shape);
    for (Index i = 0; i + 1 < shape.m; ++i)
      for (Index j = shape.n; j < shape.n + shape.gap; ++j)
        ASSERT_EQ(static_cast<float>(result.view.data[i * result.view.row_stride + j]), Owned<C>::guard)
            << describe(shape) << ": wrote between rows";
  }
};

template <class C>
bool same_bits(const std::vector<C>& x, const std::vector<C>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(C)) == 0;
}

template <class Types>
class PRUN_ISA_JOIN(Gemm_, PRUN_ISA) : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine_has_isa()) GTEST_SKIP() << "this machine lacks the instruction set";
  }
};

using Combinations = testing::Types<
    std::tuple<double, double, double>, std::tuple<float, float, float>, std::tuple<float, float, bf16>,
    std::tuple<float, bf16, float>, std::tuple<float, bf16, bf16>, std::tuple<bf16, float, float>,
    std::tuple<bf16, float, bf16>, std::tuple<bf16, bf16, float>, std::tuple<bf16, bf16, bf16>>;

// gtest's macros paste the suite's name, which must have been expanded by then.
#define PRUN_SUITE(suite) TYPED_TEST_SUITE(suite, Combinations)
#define PRUN_TEST(suite, name) TYPED_TEST(suite, name)
#define PRUN_GEMM_TEST(name) PRUN_TEST(PRUN_ISA_JOIN(Gemm_, PRUN_ISA), name)
#define PRUN_TYPES                              \
  using A = std::tuple_element_t<0, TypeParam>; \
  using B = std::tuple_element_t<1, TypeParam>; \
  using C = std::tuple_element_t<2, TypeParam>

PRUN_SUITE(PRUN_ISA_JOIN(Gemm_, PRUN_ISA));

PRUN_GEMM_TEST(MatchesTripleLoop) {
  PRUN_TYPES;
  TestWorkers pool(2);
  const Index sizes[] = {1, 3, 17, 65, 127};
  unsigned variant = 0;
  for (const Index m : sizes)
    for (const Index n : sizes)
      for (const Index k : {Index{1}, Index{5}, Index{33}, Index{127}})
        for (int times = 0; times < 2; ++times, variant += 7) {
          const Shape shape{m,
                            n,
                            k,
                            (variant & 1) != 0,
                            (variant & 2) != 0,
                            (variant & 4) != 0,
                            (variant & 8) != 0,
                            (variant & 16) != 0 ? 3 : 0};
          const Problem<A, B, C> problem(shape);
          problem.check(problem.run(pool.workers()), 1);
        }
}

PRUN_GEMM_TEST(EveryFlag) {
  PRUN_TYPES;
  TestWorkers pool(3);
  for (int flags = 0; flags < 32; ++flags) {
    const Problem<A, B, C> problem(Shape{35, 70, 50, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0,
                                         (flags & 8) != 0, (flags & 16) != 0 ? 5 : 0});
    problem.check(problem.run(pool.workers()), 1);
  }
}

// Several steps over k, several blocks of columns and of rows, several groups.
PRUN_GEMM_TEST(CrossesBlocks) {
  PRUN_TYPES;
  TestWorkers pool(2);
  for (const Shape& shape : {Shape{30, 40, 1300, false, true, true, true}, Shape{30, 40, 1300, true, false},
                             Shape{20, 2100, 20, false, false}, Shape{1100, 20, 520, true, true, true}}) {
    const Problem<A, B, C> problem(shape);
    problem.check(problem.run(pool.workers()), 1);
  }
}

PRUN_GEMM_TEST(EmptyExtents) {
  PRUN_TYPES;
  TestWorkers pool(2);
  const Problem<A, B, C> no_depth(Shape{5, 40, 0, false, false, false, true});
  no_depth.check(no_depth.run(pool.workers()), 1);
  const Problem<A, B, C> keep(Shape{5, 40, 0, false, false, true});
  EXPECT_TRUE(same_bits(keep.run(pool.workers()).values, keep.c.values));
  const Problem<A, B, C> no_rows(Shape{0, 4, 4});
  EXPECT_TRUE(no_rows.run(pool.workers()).values.empty());
}

PRUN_GEMM_TEST(SerialScales) {
  PRUN_TYPES;
  for (const Shape& shape : {Shape{64, 64, 64, false, true}, Shape{17, 50, 33, false, false, true},
                             Shape{13, 64, 700, true, false, true}}) {
    const Problem<A, B, C> problem(shape);
    Owned<C> result = problem.c;
    Workspace workspace(1, shape, compute_size<A>);
    gemm_serial<A, B, C>(0.125, problem.a.view, problem.b.view, result.view, shape.accumulate,
                         workspace.data());
    problem.check(result, 0.125);
    EXPECT_TRUE(workspace.intact());
  }
}

PRUN_GEMM_TEST(SerialHasTheBitsOfParallel) {
  PRUN_TYPES;
  TestWorkers pool(2);
  const Shape shape{65, 127, 600, false, true, true};
  const Problem<A, B, C> problem(shape);
  Owned<C> result = problem.c;
  Workspace workspace(1, shape, compute_size<A>);
  gemm_serial<A, B, C>(1, problem.a.view, problem.b.view, result.view, true, workspace.data());
  EXPECT_TRUE(same_bits(result.values, problem.run(pool.workers()).values));
}

PRUN_GEMM_TEST(BitsDoNotDependOnThreads) {
  PRUN_TYPES;
  for (const Shape& shape : {Shape{127, 129, 600, false, true, true, true}, Shape{300, 70, 65, true, false},
                             Shape{8, 1100, 520, false, true}}) {
    const Problem<A, B, C> problem(shape);
    TestWorkers alone(1);
    const Owned<C> want = problem.run(alone.workers());
    for (const int threads : {2, 3, 5}) {
      TestWorkers pool(threads);
      EXPECT_TRUE(same_bits(problem.run(pool.workers()).values, want.values))
          << describe(shape) << " on " << threads << " threads";
    }
  }
}

// Any rows, or any columns, computed in a call of their own have the bits they have in the whole.
PRUN_GEMM_TEST(BitsDoNotDependOnTheCut) {
  PRUN_TYPES;
  TestWorkers pool(2);
  const Shape shape{67, 101, 600, false, true, true, true};
  const Problem<A, B, C> problem(shape);
  const Owned<C> want = problem.run(pool.workers());
  const Matrix<const A> a = problem.a.view;
  const Matrix<const B> b = problem.b.view;
  Workspace workspace(2, shape, compute_size<A>);
  for (const Index cut : {1, 4, 8, 33, 66}) {
    Owned<C> by_rows = problem.c, by_columns = problem.c;
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, cut}, {cut, shape.m}}) {
      Matrix<C> c = by_rows.view;
      c.data += begin * c.row_stride, c.rows = end - begin;
      gemm<A, B, C>(pool.workers(),
                    {a.data + begin * a.row_stride, end - begin, a.cols, a.row_stride, a.col_stride}, b, c,
                    true, problem.bias.data(), workspace.data());
    }
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, cut}, {cut, shape.n}}) {
      Matrix<C> c = by_columns.view;
      c.data += begin, c.cols = end - begin;
      gemm<A, B, C>(pool.workers(), a,
                    {b.data + begin * b.col_stride, b.rows, end - begin, b.row_stride, b.col_stride}, c, true,
                    problem.bias.data() + begin, workspace.data());
    }
    EXPECT_TRUE(same_bits(by_rows.values, want.values)) << "rows cut at " << cut;
    EXPECT_TRUE(same_bits(by_columns.values, want.values)) << "columns cut at " << cut;
  }
}

PRUN_GEMM_TEST(WorkspaceStaysModest) {
  using A = std::tuple_element_t<0, TypeParam>;
  constexpr Index size = compute_size<A>;
  const Index huge = gemm_workspace(2, 1 << 20, 1 << 20, 1 << 20, size);
  EXPECT_LE(huge, Index{10} << 20);
  EXPECT_EQ(huge, gemm_workspace(2, 1 << 24, 1 << 24, 1 << 24, size));
}

PRUN_GEMM_TEST(WorkspaceGrowsWithEveryExtent) {
  using A = std::tuple_element_t<0, TypeParam>;
  constexpr Index size = compute_size<A>;
  for (Index large = 2; large < 3000; large += 1 + large / 8)
    for (const Index other : {10, 500, 2000}) {
      const Index small = large - 1 - large / 16;
      EXPECT_LE(gemm_workspace(2, small, other, other, size), gemm_workspace(2, large, other, other, size));
      EXPECT_LE(gemm_workspace(2, other, small, other, size), gemm_workspace(2, other, large, other, size));
      EXPECT_LE(gemm_workspace(2, other, other, small, size), gemm_workspace(2, other, other, large, size));
    }
}

// Every shape stays within its workspace, the ones just past a cut above all.
PRUN_GEMM_TEST(StaysInItsWorkspace) {
  PRUN_TYPES;
  for (const int threads : {1, 3}) {
    TestWorkers pool(threads);
    for (const Shape& shape : {Shape{520, 400, 3, true, true}, Shape{513, 1030, 2}, Shape{5, 390, 515, true},
                               Shape{1030, 33, 513, true}, Shape{225, 1024, 257, true, true}}) {
      const Problem<A, B, C> problem(shape);
      problem.check(problem.run(pool.workers()), 1);
    }
  }
}

}  // namespace
}  // namespace prun::test::gemm_test
