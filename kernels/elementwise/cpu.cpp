// Implements add, scale, cast, accumulate, reciprocal, multiply and choose. Each element is rounded once, so
// plain loops give the same bits wherever they are cut.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/elementwise.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;

template <class T>
void add(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Add> op(args);
  const Tensor &a = op["a"], &b = op["b"], &y = op["y"];
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const T* __restrict left = a.as<const T>(), * __restrict right = b.as<const T>();
    T* __restrict sum = y.as<T>();
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(sum[i], load(left[i]) + load(right[i]));
  });
}

template <class T>
void scale(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Scale> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  const auto factor = static_cast<Compute<T>>(op.real("factor"));
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const T* __restrict from = x.as<const T>();
    T* __restrict to = y.as<T>();
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(to[i], factor * load(from[i]));
  });
}

template <class From, class To>
void cast(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Cast> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const From* __restrict from = x.as<const From>();
    To* __restrict to = y.as<To>();
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(to[i], load(from[i]));
  });
}

template <class T, class Sum>
void accumulate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Accumulate> op(args);
  const Tensor &x = op["x"], &y = op["sum"];
  parallel_ranges(*context.workers, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    const T* __restrict from = x.as<const T>();
    Sum* __restrict sum = y.as<Sum>();
    if (op.begins("sum")) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(sum[i], load(from[i]));
      return;
    }
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) add_to(sum[i], load(from[i]));
  });
}

void reciprocal(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Reciprocal> op(args);
  *op["y"].as<double>() = 1.0 / *op["x"].as<const double>();
}

void multiply(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Multiply> op(args);
  *op["y"].as<double>() = *op["a"].as<const double>() * *op["b"].as<const double>();
}

void choose(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Choose> op(args);
  const Tensor& chosen = *op["which"].as<const double>() != 0 ? op["a"] : op["b"];
  *op["y"].as<double>() = *chosen.as<const double>();
}

Kernel select_add(const OpShape& shape) {
  const ShapeOf<ops::Add> s(shape);
  if (!same_type(s, {"a", "b", "y"})) return nullptr;
  return choose_value(s["a"].dtype, []<class T>() -> Kernel { return add<T>; });
}

Kernel select_scale(const OpShape& shape) {
  const ShapeOf<ops::Scale> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return scale<T>; });
}

Kernel select_cast(const OpShape& shape) {
  const ShapeOf<ops::Cast> s(shape);
  return choose_value(s["x"].dtype, [&]<class From>() -> Kernel {
    return choose_value(s["y"].dtype, []<class To>() -> Kernel { return cast<From, To>; });
  });
}

Kernel select_reciprocal(const OpShape& shape) {
  const ShapeOf<ops::Reciprocal> s(shape);
  return s["x"].dtype == DType::f64 && s["x"].rank == 0 ? reciprocal : nullptr;
}

// Only numbers in fp64 are multiplied, by the op's rules.
Kernel select_multiply(const OpShape&) { return multiply; }
Kernel select_choose(const OpShape&) { return choose; }

Kernel select_accumulate(const OpShape& shape) {
  const ShapeOf<ops::Accumulate> s(shape);
  return choose_accumulation(s["x"].dtype, s["sum"].dtype,
                             []<class T, class Sum>() -> Kernel { return accumulate<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> elementwise_kernels();
std::vector<KernelDef> elementwise_kernels() {
  return {{ops::Add::kind, select_add},
          {ops::Scale::kind, select_scale},
          {ops::Cast::kind, select_cast},
          {ops::Accumulate::kind, select_accumulate, nullptr, bits_of<ops::Accumulate>("sum")},
          {ops::Reciprocal::kind, select_reciprocal},
          {ops::Multiply::kind, select_multiply},
          {ops::Choose::kind, select_choose}};
}

}  // namespace prun::cpu::PRUN_ISA
