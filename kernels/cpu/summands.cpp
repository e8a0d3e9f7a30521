// Implements keep_summand, momentum_summand and frozen_direction: the parts of an update that ranks sum. Each
// operation is rounded by itself, so that every device gives the same bits.
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "summand_rule.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;

void keep_summand(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &summands = args.operands[1];
  const std::int64_t row = x.elements() * size_of(x.dtype), rows = summands.elements() / x.elements();
  char* const to = summands.as<char>();
  parallel_ranges(*context.workers, row, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto bytes = static_cast<std::size_t>(end - begin);
    for (std::int64_t r = 0; r + 1 < rows; ++r)
      std::memcpy(to + r * row + begin, to + (r + 1) * row + begin, bytes);
    std::memcpy(to + (rows - 1) * row + begin, x.as<const char>() + begin, bytes);
  });
}

template <class T>
void momentum_summand(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor &gradient = args.operands[0], &m = args.operands[1], &summand = args.operands[3];
  const MomentumRule<C> rule(args.attrs[0].f, args.attrs[1].i, *args.operands[2].as<const double>());
  const std::int64_t row = m.elements();
  parallel_ranges(*context.workers, gradient.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      summand.as<C>()[i] = rule(load(gradient.as<const T>()[i]), m.as<const C>()[i % row]);
  });
}

template <class C>
void frozen_direction(const KernelArgs& args, const KernelContext& context) {
  const Tensor &sum = args.operands[0], &m = args.operands[1], &v = args.operands[2], &y = args.operands[4];
  const bool keep = *args.operands[3].as<const double>() != 0;
  const FrozenRule<C> rule(args.attrs[0].f, args.attrs[1].f, args.attrs[2].i);
  parallel_ranges(*context.workers, m.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const C now = sum.as<const C>()[i];
      y.as<C>()[i] = rule(now, v.as<const C>()[i]);
      if (keep) m.as<C>()[i] = now;
    }
  });
}

Kernel select_keep(const OpShape&) { return keep_summand; }

Kernel select_momentum(const OpShape& s) {
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return momentum_summand<T>; });
}

Kernel select_direction(const OpShape& s) {
  return s.operand[0].dtype == DType::f64   ? Kernel(frozen_direction<double>)
         : s.operand[0].dtype == DType::f32 ? Kernel(frozen_direction<float>)
                                            : nullptr;
}

}  // namespace

std::vector<KernelDef> summands_kernels();
std::vector<KernelDef> summands_kernels() {
  return {{"keep_summand", select_keep},
          {"momentum_summand", select_momentum},
          {"frozen_direction", select_direction}};
}

}  // namespace prun::cpu::PRUN_ISA
