// Implements gelu in both forms, swiglu, geglu in both and their gradients.
#include <cmath>
#include <numbers>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gelu.hpp"
#include "cpu/lanes.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "prun/ops/activation.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void gelu(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Gelu> op(args);
  using C = Compute<T>;
  const auto body = [](const T* __restrict x, T* __restrict y) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C value = load(x[l]);
      store(y[l], value * gelu_gate(value).value);
    }
  };
  const Tensor& x = op["x"];
  parallel_blocks(*context.workers, x.elements(), body, x.as<const T>(), op["y"].as<T>());
}

template <class T>
void gelu_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::GeluGrad> op(args);
  using C = Compute<T>;
  const auto body = [](const T* __restrict dy, const T* __restrict x, T* __restrict dx) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      store(dx[l], load(dy[l]) * gelu_derivative<C>(load(x[l])));
    }
  };
  const Tensor& x = op["x"];
  parallel_blocks(*context.workers, x.elements(), body, op["dy"].as<const T>(), x.as<const T>(),
                  op["dx"].as<T>());
}

// Returns what multiplies x: the share of a normal distribution that is below it.
template <class C>
C normal_below(C x) {
  return C(0.5) * std::erfc(-x * C(std::numbers::sqrt2 / 2));
}

template <class C>
C normal_density(C x) {
  return C(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) * std::exp(C(-0.5) * x * x);
}

template <class T>
void gelu_erf(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::GeluErf> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T* in = x.as<const T>();
  T* out = op["y"].as<T>();
  parallel_ranges(*context.workers, x.elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const C value = load(in[i]);
      store(out[i], value * normal_below(value));
    }
  });
}

template <class T>
void gelu_erf_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::GeluErfGrad> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T *dy = op["dy"].as<const T>(), *in = x.as<const T>();
  T* dx = op["dx"].as<T>();
  parallel_ranges(*context.workers, x.elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const C value = load(in[i]);
      store(dx[i], load(dy[i]) * (normal_below(value) + value * normal_density(value)));
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

struct GeluErfGate {
  template <class C>
  static Gated<C> of(C g) {
    const C below = normal_below(g);
    return {g * below, below + g * normal_density(g)};
  }
};

template <class T, class Op, class Gate>
void gated(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<Op> op(args);
  const auto body = [](const T* __restrict gate, const T* __restrict up, T* __restrict y) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C g = load(gate[l]);
      store(y[l], Gate::of(g).value * load(up[l]));
    }
  };
  const Tensor &x = op["x"], &y = op["y"];
  const std::int64_t width = x.inner(1);
  const T* in = x.as<const T>();
  T* out = y.as<T>();
  parallel_ranges(*context.workers, x.outer(2), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = in + row * 2 * width;
      for_blocks(width, body, gate, gate + width, out + row * width);
    }
  });
}

template <class T, class Op, class Gate>
void gated_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<Op> op(args);
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
  const Tensor &gradient = op["dy"], &x = op["x"], &result = op["dx"];
  const std::int64_t width = x.inner(1);
  const T* dy = gradient.as<const T>();
  const T* in = x.as<const T>();
  T* dx = result.as<T>();
  parallel_ranges(*context.workers, x.outer(2), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = in + row * 2 * width;
      T* dgate = dx + row * 2 * width;
      for_blocks(width, body, dy + row * width, gate, gate + width, dgate, dgate + width);
    }
  });
}

Kernel select_gelu(const OpShape& shape) {
  const ShapeOf<ops::Gelu> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return gelu<T>; });
}

Kernel select_gelu_grad(const OpShape& shape) {
  const ShapeOf<ops::GeluGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return gelu_grad<T>; });
}

Kernel select_gelu_erf(const OpShape& shape) {
  const ShapeOf<ops::GeluErf> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return gelu_erf<T>; });
}

Kernel select_gelu_erf_grad(const OpShape& shape) {
  const ShapeOf<ops::GeluErfGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return gelu_erf_grad<T>; });
}

template <class Op, class Gate>
Kernel select_gated(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return gated<T, Op, Gate>; });
}

template <class Op, class Gate>
Kernel select_gated_grad(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return gated_grad<T, Op, Gate>; });
}

}  // namespace

std::vector<KernelDef> activation_kernels();
std::vector<KernelDef> activation_kernels() {
  return {{ops::Gelu::kind, select_gelu},
          {ops::GeluGrad::kind, select_gelu_grad},
          {ops::GeluErf::kind, select_gelu_erf},
          {ops::GeluErfGrad::kind, select_gelu_erf_grad},
          {ops::SwiGlu::kind, select_gated<ops::SwiGlu, SiluGate>},
          {ops::SwiGluGrad::kind, select_gated_grad<ops::SwiGluGrad, SiluGate>},
          {ops::GeGlu::kind, select_gated<ops::GeGlu, GeluGate>},
          {ops::GeGluGrad::kind, select_gated_grad<ops::GeGluGrad, GeluGate>},
          {ops::GeGluErf::kind, select_gated<ops::GeGluErf, GeluErfGate>},
          {ops::GeGluErfGrad::kind, select_gated_grad<ops::GeGluErfGrad, GeluErfGate>}};
}

}  // namespace prun::cpu::PRUN_ISA
