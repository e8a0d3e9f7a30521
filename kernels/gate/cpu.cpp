// Implements sigmoid_gate and the gradient of its gate.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "prun/ops/gate.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void sigmoid_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SigmoidGate> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T* const gate = op["gate"].as<const T>();
  const std::int64_t width = x.inner(1);
  parallel_ranges(*context.workers, x.outer(1), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const C by = sigmoid(load(gate[row])).value;
      const auto body = [by](const T* __restrict from, T* __restrict to) {
#pragma omp simd
        for (int l = 0; l < block_lanes; ++l) store(to[l], by * load(from[l]));
      };
      for_blocks(width, body, x.as<const T>() + row * width, op["y"].as<T>() + row * width);
    }
  });
}

template <class T>
void sigmoid_gate_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SigmoidGateGrad> op(args);
  using C = Compute<T>;
  const Tensor &dy = op["dy"], &x = op["x"];
  const T* const gate = op["gate"].as<const T>();
  T* const dgate = op["dgate"].as<T>();
  const std::int64_t width = x.inner(1);
  parallel_ranges(*context.workers, x.outer(1), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T *const d = dy.as<const T>() + row * width, *const v = x.as<const T>() + row * width;
      const C sum = lane_sum<C>(width, [&](std::int64_t i) { return load(d[i]) * load(v[i]); });
      const Sigmoid<C> s = sigmoid(load(gate[row]));
      store(dgate[row], sum * s.value * s.rest);
    }
  });
}

Kernel select_sigmoid_gate(const OpShape& shape) {
  const ShapeOf<ops::SigmoidGate> s(shape);
  if (!same_type(s, {"x", "gate", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return sigmoid_gate<T>; });
}

Kernel select_sigmoid_gate_grad(const OpShape& shape) {
  const ShapeOf<ops::SigmoidGateGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gate", "dgate"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return sigmoid_gate_grad<T>; });
}

}  // namespace

std::vector<KernelDef> gate_kernels();
std::vector<KernelDef> gate_kernels() {
  return {{ops::SigmoidGate::kind, select_sigmoid_gate},
          {ops::SigmoidGateGrad::kind, select_sigmoid_gate_grad}};
}

}  // namespace prun::cpu::PRUN_ISA
