// Implements output_gate and the gradient of its gate, split_gate and join_gate.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void output_gate(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const auto run = [&](auto of_silu) {
    const auto body = [](const T* __restrict x, const T* __restrict gate, T* __restrict y) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) {
        const C g = load(gate[l]), by = sigmoid(g).value;
        store(y[l], load(x[l]) * (decltype(of_silu)::value ? by * g : by));
      }
    };
    parallel_blocks(*context.workers, o[0].elements(), body, o[0].as<const T>(), o[1].as<const T>(),
                    o[2].as<T>());
  };
  if (args.attrs[0].i)
    run(std::true_type());
  else
    run(std::false_type());
}

// With s the sigmoid of the gate g, the slope is s (1 - s), and of silu s (1 + g (1 - s)).
template <class T>
void output_gate_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
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
    parallel_blocks(*context.workers, o[1].elements(), body, o[0].as<const T>(), o[1].as<const T>(),
                    o[2].as<const T>(), o[3].as<T>());
  };
  if (args.attrs[0].i)
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
  const Tensor* o = args.operands;
  for_slots(o[1], context, [=](std::int64_t slot, std::int64_t width) {
    const T* x = o[0].as<const T>() + 2 * slot * width;
    std::copy_n(x, width, o[1].as<T>() + slot * width);
    std::copy_n(x + width, width, o[2].as<T>() + slot * width);
  });
}

template <class T>
void join_gate(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_slots(o[0], context, [=](std::int64_t slot, std::int64_t width) {
    T* x = o[2].as<T>() + 2 * slot * width;
    std::copy_n(o[0].as<const T>() + slot * width, width, x);
    std::copy_n(o[1].as<const T>() + slot * width, width, x + width);
  });
}

Kernel select_gate(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return output_gate<T>; });
}

Kernel select_gate_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return output_gate_grad<T>; });
}

Kernel select_split(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_gate<T>; });
}

Kernel select_join(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_gate<T>; });
}

}  // namespace

std::vector<KernelDef> output_gate_kernels();
std::vector<KernelDef> output_gate_kernels() {
  return {{"output_gate", select_gate},
          {"output_gate_grad", select_gate_grad},
          {"split_gate", select_split},
          {"join_gate", select_join}};
}

}  // namespace prun::cpu::PRUN_ISA
