// Implements gelu in both forms, swiglu, geglu and their gradients.
#include <cmath>
#include <numbers>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gelu.hpp"
#include "cpu/lanes.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void gelu(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const auto body = [](const T* __restrict x, T* __restrict y) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C value = load(x[l]);
      store(y[l], value * gelu_gate(value).value);
    }
  };
  const Tensor& x = args.operands[0];
  parallel_blocks(*context.workers, x.elements(), body, x.as<const T>(), args.operands[1].as<T>());
}

template <class T>
void gelu_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const auto body = [](const T* __restrict dy, const T* __restrict x, T* __restrict dx) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      store(dx[l], load(dy[l]) * gelu_derivative<C>(load(x[l])));
    }
  };
  const Tensor& x = args.operands[1];
  parallel_blocks(*context.workers, x.elements(), body, args.operands[0].as<const T>(), x.as<const T>(),
                  args.operands[2].as<T>());
}

// Returns what multiplies x: the share of a normal distribution that is below it.
template <class C>
C normal_below(C x) {
  return C(0.5) * std::erfc(-x * C(std::numbers::sqrt2 / 2));
}

template <class T>
void gelu_erf(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor& x = args.operands[0];
  const T* in = x.as<const T>();
  T* out = args.operands[1].as<T>();
  parallel_ranges(*context.workers, x.elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const C value = load(in[i]);
      store(out[i], value * normal_below(value));
    }
  });
}

template <class T>
void gelu_erf_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor& x = args.operands[1];
  const T *dy = args.operands[0].as<const T>(), *in = x.as<const T>();
  T* dx = args.operands[2].as<T>();
  parallel_ranges(*context.workers, x.elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const C value = load(in[i]), density = C(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) *
                                             std::exp(C(-0.5) * value * value);
      store(dx[i], load(dy[i]) * (normal_below(value) + value * density));
    }
  });
}

// Holds what multiplies `up`, and its slope.
template <class C>
struct Gated {
  C value, slope;
};

struct SiluGate {
  template <class C>
  static Gated<C> of(C g) {
    const Sigmoid<C> s = sigmoid(g);
    return {g * s.value, s.value * (C(1) + g * s.rest)};
  }
};

struct GeluGate {
  template <class C>
  static Gated<C> of(C g) {
    return {g * gelu_gate(g).value, gelu_derivative(g)};
  }
};

template <class T, class Gate>
void gated(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const auto body = [](const T* __restrict gate, const T* __restrict up, T* __restrict y) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C g = load(gate[l]);
      store(y[l], Gate::of(g).value * load(up[l]));
    }
  };
  const Tensor& x = args.operands[0];
  const std::int64_t width = x.inner(1);
  const T* in = x.as<const T>();
  T* out = args.operands[1].as<T>();
  parallel_ranges(*context.workers, x.outer(2), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = in + row * 2 * width;
      for_blocks(width, body, gate, gate + width, out + row * width);
    }
  });
}

template <class T, class Gate>
void gated_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const auto body = [](const T* __restrict dy, const T* __restrict gate, const T* __restrict up,
                       T* __restrict dgate, T* __restrict dup) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C d = load(dy[l]);
      const Gated<C> by = Gate::of(static_cast<C>(load(gate[l])));
      store(dgate[l], d * load(up[l]) * by.slope);
      store(dup[l], d * by.value);
    }
  };
  const Tensor& x = args.operands[1];
  const std::int64_t width = x.inner(1);
  const T* dy = args.operands[0].as<const T>();
  const T* in = x.as<const T>();
  T* dx = args.operands[2].as<T>();
  parallel_ranges(*context.workers, x.outer(2), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = in + row * 2 * width;
      T* dgate = dx + row * 2 * width;
      for_blocks(width, body, dy + row * width, gate, gate + width, dgate, dgate + width);
    }
  });
}

Kernel select_gelu(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu<T>; });
}

Kernel select_gelu_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu_grad<T>; });
}

Kernel select_gelu_erf(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu_erf<T>; });
}

Kernel select_gelu_erf_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu_erf_grad<T>; });
}

template <class Gate>
Kernel select_gated(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return gated<T, Gate>; });
}

template <class Gate>
Kernel select_gated_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return gated_grad<T, Gate>; });
}

}  // namespace

std::vector<KernelDef> activation_kernels();
std::vector<KernelDef> activation_kernels() {
  return {{"gelu", select_gelu},
          {"gelu_grad", select_gelu_grad},
          {"gelu_erf", select_gelu_erf},
          {"gelu_erf_grad", select_gelu_erf_grad},
          {"swiglu", select_gated<SiluGate>},
          {"swiglu_grad", select_gated_grad<SiluGate>},
          {"geglu", select_gated<GeluGate>},
          {"geglu_grad", select_gated_grad<GeluGate>}};
}

}  // namespace prun::cpu::PRUN_ISA
