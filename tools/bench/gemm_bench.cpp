// Times the CPU matrix multiply on the shapes of training, beside the libraries it was chosen over.
//
//   gemm_bench [threads] [seconds per measurement]
//
// It is built for one instruction set (PRUN_ISA). Libraries are compared when PRUN_BENCH_OPENBLAS or
// PRUN_BENCH_ONEDNN is defined; the command is in docs/gemm_choice.md.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../../kernels/cpu/gemm.hpp"
#include "../../tests/support/test_workers.hpp"

#ifdef PRUN_BENCH_OPENBLAS
#include <cblas.h>
#endif
#ifdef PRUN_BENCH_ONEDNN
#include <dnnl.h>
#include <omp.h>
#endif

namespace {

using prun::bf16;
using prun::Workers;
using prun::cpu::PRUN_ISA::gemm;
using prun::cpu::PRUN_ISA::gemm_serial;
using prun::cpu::PRUN_ISA::gemm_workspace;
using prun::cpu::PRUN_ISA::Matrix;
using prun::cpu::PRUN_ISA::row_major;

struct Problem {
  const char* what;
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

constexpr Problem problems[] = {
    {"square", 512, 512, 512, false, false},          {"forward", 1024, 128, 512, false, true},
    {"forward", 2048, 1536, 512, false, true},        {"forward", 2048, 512, 2048, false, true},
    {"forward", 512, 2048, 2048, false, true},        {"input gradient", 2048, 512, 1536, false, false},
    {"LM head", 256, 50304, 512, false, true},        {"weight gradient", 2048, 512, 2048, true, false},
    {"weight gradient", 128, 128, 8192, true, false},
};

template <class T>
std::vector<T> random_values(std::int64_t count) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(draw(generator));
  return values;
}

// Holds the operands of one problem in one type, with room for the result.
template <class T>
struct Data {
  explicit Data(const Problem& p)
      : a(random_values<T>(p.m * p.k)),
        b(random_values<T>(p.k * p.n)),
        c(static_cast<std::size_t>(p.m * p.n)) {}
  std::vector<T> a, b, c;
};

// Measures GFLOP/s of the fastest run, after one to warm up. On one thread the time is that thread's CPU
// time, which other programs on the machine disturb less.
class Timer {
 public:
  Timer(int threads, double seconds)
      : clock_(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC), seconds_(seconds) {}

  template <class Body>
  double best(double flops, Body&& body) const {
    body();
    double fastest = 1e30;
    for (const double start = now(); now() - start < seconds_;) {
      const double begin = now();
      body();
      fastest = std::min(fastest, now() - begin);
    }
    return flops / fastest / 1e9;
  }

 private:
  double now() const {
    timespec time;
    clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  clockid_t clock_;
  double seconds_;
};

template <class T>
double time_ours(const Timer& timer, const Workers& workers, const Problem& p) {
  Data<T> data(p);
  std::vector<char> space(
      static_cast<std::size_t>(gemm_workspace(workers.count, p.m, p.n, p.k, sizeof(T) == 8 ? 8 : 4)));
  const auto view = [](const T* values, std::int64_t rows, std::int64_t cols, bool transposed) {
    return transposed ? row_major(values, cols, rows).transposed() : row_major(values, rows, cols);
  };
  const Matrix<const T> a = view(data.a.data(), p.m, p.k, p.a_transposed);
  const Matrix<const T> b = view(data.b.data(), p.k, p.n, p.b_transposed);
  const Matrix<T> c = row_major(data.c.data(), p.m, p.n);
  const T* no_bias = nullptr;
  return timer.best(p.flops(), [&] { gemm<T, T, T>(workers, a, b, c, false, no_bias, space.data()); });
}

#ifdef PRUN_BENCH_OPENBLAS
template <class T>
double time_openblas(const Timer& timer, int threads, const Problem& p) {
  Data<T> data(p);
  openblas_set_num_threads(threads);
  const auto flag = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  const int lda = p.a_transposed ? m : k, ldb = p.b_transposed ? k : n;
  return timer.best(p.flops(), [&] {
    if constexpr (sizeof(T) == 8)
      cblas_dgemm(CblasRowMajor, flag(p.a_transposed), flag(p.b_transposed), m, n, k, 1, data.a.data(), lda,
                  data.b.data(), ldb, 0, data.c.data(), n);
    else
      cblas_sgemm(CblasRowMajor, flag(p.a_transposed), flag(p.b_transposed), m, n, k, 1, data.a.data(), lda,
                  data.b.data(), ldb, 0, data.c.data(), n);
  });
}
#endif

#ifdef PRUN_BENCH_ONEDNN
double time_onednn(const Timer& timer, int threads, const Problem& p) {
  omp_set_num_threads(threads);
  Data<float> data(p);
  const auto flag = [](bool transposed) { return transposed ? 'T' : 'N'; };
  const std::int64_t lda = p.a_transposed ? p.m : p.k, ldb = p.b_transposed ? p.k : p.n;
  return timer.best(p.flops(), [&] {
    dnnl_sgemm(flag(p.a_transposed), flag(p.b_transposed), p.m, p.n, p.k, 1, data.a.data(), lda,
               data.b.data(), ldb, 0, data.c.data(), p.n);
  });
}
#endif

void compare(const Timer& timer, const Workers& workers, const Problem& p) {
  const double ours = time_ours<float>(timer, workers, p);
  double blas = 0, dnn = 0, blas64 = 0;
#ifdef PRUN_BENCH_OPENBLAS
  blas = time_openblas<float>(timer, workers.count, p);
  blas64 = time_openblas<double>(timer, workers.count, p);
#endif
#ifdef PRUN_BENCH_ONEDNN
  dnn = time_onednn(timer, workers.count, p);
#endif
  const double best = std::max(blas, dnn);
  const double ours64 = time_ours<double>(timer, workers, p);
  const double ours16 = time_ours<bf16>(timer, workers, p);
  const std::string shape = std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
  std::printf("| %-15s | %-14s | %5.0f | %8.0f | %6.0f | %5.2f | %5.0f | %8.0f | %5.0f |\n", p.what,
              shape.c_str(), ours, blas, dnn, best > 0 ? ours / best : 0, ours64, blas64, ours16);
  std::fflush(stdout);
}

// Times the products inside attention: they are small, on one thread, with float scores from bf16 operands.
void time_small(const Timer& timer) {
  for (const std::int64_t size : {32, 64, 128}) {
    const Problem p{"attention", size, size, 64, false, true};
    Data<bf16> data(p);
    std::vector<float> c(static_cast<std::size_t>(p.m * p.n));
    std::vector<char> space(static_cast<std::size_t>(gemm_workspace(1, p.m, p.n, p.k, 4)));
    const auto a = row_major<const bf16>(data.a.data(), p.m, p.k);
    const auto b = row_major<const bf16>(data.b.data(), p.n, p.k).transposed();
    const double speed = timer.best(100 * p.flops(), [&] {
      for (int i = 0; i < 100; ++i)
        gemm_serial<bf16, bf16, float>(0.125, a, b, row_major(c.data(), p.m, p.n), false, space.data());
    });
    std::printf("attention scores %ldx%ldx64, bf16 to float, one thread: %.0f\n", static_cast<long>(size),
                static_cast<long>(size), speed);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const Timer timer(threads, count > 2 ? std::atof(arguments[2]) : 0.5);
  prun::test::TestWorkers pool(threads);
  std::printf("%d thread%s, GFLOP/s of the fastest run\n\n", threads, threads == 1 ? "" : "s");
  std::printf(
      "| product         | m x n x k      |  fp32 | OpenBLAS | oneDNN | ratio |  fp64 | OpenBLAS |  bf16 "
      "|\n");
  std::printf(
      "|-----------------|----------------|-------|----------|--------|-------|-------|----------|-------|"
      "\n");
  for (const Problem& problem : problems) compare(timer, pool.workers(), problem);
  std::printf("\n");
  time_small(timer);
}
