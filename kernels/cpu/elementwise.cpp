// Implements add, scale, cast, accumulate, reciprocal, multiply and choose. Each element is rounded once, so
// plain loops give the same bits wherever they are cut.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;

template <class T>
void add(const KernelArgs& args, const KernelContext& context) {
  const Tensor &a = args.operands[0], &b = args.operands[1], &y = args.operands[2];
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const T* __restrict left = a.as<const T>(), * __restrict right = b.as<const T>();
    T* __restrict sum = y.as<T>();
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(sum[i], load(left[i]) + load(right[i]));
  });
}

template <class T>
void scale(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  const auto factor = static_cast<Compute<T>>(args.attrs[0].f);
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const T* __restrict from = x.as<const T>();
    T* __restrict to = y.as<T>();
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(to[i], factor * load(from[i]));
  });
}

template <class From, class To>
void cast(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const From* __restrict from = x.as<const From>();
    To* __restrict to = y.as<To>();
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(to[i], load(from[i]));
  });
}

template <class T, class Sum>
void accumulate(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const T* __restrict from = x.as<const T>();
    Sum* __restrict sum = y.as<Sum>();
    if (args.begins(1)) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(sum[i], load(from[i]));
      return;
    }
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) add_to(sum[i], load(from[i]));
  });
}

void reciprocal(const KernelArgs& args, const KernelContext&) {
  *args.operands[1].as<double>() = 1.0 / *args.operands[0].as<const double>();
}

void multiply(const KernelArgs& args, const KernelContext&) {
  const Tensor* const x = args.operands;
  *x[2].as<double>() = *x[0].as<const double>() * *x[1].as<const double>();
}

void choose(const KernelArgs& args, const KernelContext&) {
  const Tensor* const x = args.operands;
  *x[3].as<double>() = *(*x[0].as<const double>() != 0 ? x[1] : x[2]).as<const double>();
}

Kernel select_add(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return add<T>; });
}

Kernel select_scale(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return scale<T>; });
}

Kernel select_cast(const OpShape& s) {
  return choose_value(s.operand[0].dtype, [&]<class From>() -> Kernel {
    return choose_value(s.operand[1].dtype, []<class To>() -> Kernel { return cast<From, To>; });
  });
}

Kernel select_reciprocal(const OpShape& s) {
  return s.operand[0].dtype == DType::f64 && s.operand[0].rank == 0 ? reciprocal : nullptr;
}

// Only numbers in fp64 are multiplied, by the op's rules.
Kernel select_multiply(const OpShape&) { return multiply; }
Kernel select_choose(const OpShape&) { return choose; }

Kernel select_accumulate(const OpShape& s) {
  return choose_accumulation(s.operand[0].dtype, s.operand[1].dtype,
                             []<class T, class Sum>() -> Kernel { return accumulate<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> elementwise_kernels();
std::vector<KernelDef> elementwise_kernels() {
  return {{"add", select_add},
          {"scale", select_scale},
          {"cast", select_cast},
          {"accumulate", select_accumulate, nullptr, 1u << 1},
          {"reciprocal", select_reciprocal},
          {"multiply", select_multiply},
          {"choose", select_choose}};
}

}  // namespace prun::cpu::PRUN_ISA
