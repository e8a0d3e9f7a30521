// Implements output_gate and the gradient of its gate, split_gate and join_gate.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"
#include "prun/ops/output_gate.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void output_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::OutputGate> op(args);
  using C = Compute<T>;
  const auto run = [&](auto of_silu) {
    const auto body = [](const T* __restrict x, const T* __restrict gate, T* __restrict y) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) {
        const C g = load(gate[l]), by = sigmoid(g).value;
        store(y[l], load(x[l]) * (decltype(of_silu)::value ? by * g : by));
      }
    };
    parallel_blocks(*context.workers, op["x"].elements(), body, op["x"].as<const T>(),
                    op["gate"].as<const T>(), op["y"].as<T>());
  };
  if (op.integer("silu"))
    run(std::true_type());
  else
    run(std::false_type());
}

// With s the sigmoid of the gate g, the slope is s (1 - s), and of silu s (1 + g (1 - s)).
template <class T>
void output_gate_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::OutputGateGrad> op(args);
  using C = Compute<T>;
  const auto run = [&](auto of_silu) {
    const auto body = [](const T* __restrict dy, const T* __restrict x, const T* __restrict gate,
                         T* __restrict dgate) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) {
        const C g = load(gate[l]);
        const Sigmoid<C> s = sigmoid(g);
        const C slope = decltype(of_silu)::value ? s.value * (C(1) + g * s.rest) : s.value * s.rest;
        store(dgate[l], load(dy[l]) * load(x[l]) * slope);
      }
    };
    parallel_blocks(*context.workers, op["x"].elements(), body, op["dy"].as<const T>(), op["x"].as<const T>(),
                    op["gate"].as<const T>(), op["dgate"].as<T>());
  };
  if (op.integer("silu"))
    run(std::true_type());
  else
    run(std::false_type());
}

// Calls body(slot, width) for each slot of x, of its last dimension.
template <class Body>
void for_slots(const Tensor& x, const KernelContext& context, const Body& body) {
  const std::int64_t width = x.inner(1);
  parallel_ranges(*context.workers, x.outer(1), std::max<std::int64_t>(1, 4096 / width),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t slot = begin; slot < end; ++slot) body(slot, width);
                  });
}

template <class T>
void split_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitGate> op(args);
  for_slots(op["y"], context, [=](std::int64_t slot, std::int64_t width) {
    const T* x = op["x"].as<const T>() + 2 * slot * width;
    std::copy_n(x, width, op["y"].as<T>() + slot * width);
    std::copy_n(x + width, width, op["gate"].as<T>() + slot * width);
  });
}

template <class T>
void join_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinGate> op(args);
  for_slots(op["y"], context, [=](std::int64_t slot, std::int64_t width) {
    T* x = op["x"].as<T>() + 2 * slot * width;
    std::copy_n(op["y"].as<const T>() + slot * width, width, x);
    std::copy_n(op["gate"].as<const T>() + slot * width, width, x + width);
  });
}

Kernel select_gate(const OpShape& shape) {
  const ShapeOf<ops::OutputGate> s(shape);
  if (!same_type(s, {"x", "gate", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return output_gate<T>; });
}

Kernel select_gate_grad(const OpShape& shape) {
  const ShapeOf<ops::OutputGateGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gate", "dgate"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return output_gate_grad<T>; });
}

Kernel select_split(const OpShape& shape) {
  const ShapeOf<ops::SplitGate> s(shape);
  if (!same_type(s, {"x", "y", "gate"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return split_gate<T>; });
}

Kernel select_join(const OpShape& shape) {
  const ShapeOf<ops::JoinGate> s(shape);
  if (!same_type(s, {"y", "gate", "x"})) return nullptr;
  return choose_value(s["y"].dtype, []<class T>() -> Kernel { return join_gate<T>; });
}

}  // namespace

std::vector<KernelDef> output_gate_kernels();
std::vector<KernelDef> output_gate_kernels() {
  return {{ops::OutputGate::kind, select_gate},
          {ops::OutputGateGrad::kind, select_gate_grad},
          {ops::SplitGate::kind, select_split},
          {ops::JoinGate::kind, select_join}};
}

}  // namespace prun::cpu::PRUN_ISA
