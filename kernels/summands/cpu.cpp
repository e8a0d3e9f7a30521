// Implements keep_summand, momentum_summand and frozen_direction: the parts of an update that ranks sum. Each
// operation is rounded by itself, so that every device gives the same bits.
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/summands.hpp"
#include "summand_rule.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;

void keep_summand(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::KeepSummand> op(args);
  const Tensor &x = op["x"], &summands = op["summands"];
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
  const ArgsOf<ops::MomentumSummand> op(args);
  using C = Compute<T>;
  const Tensor &gradient = op["gradient"], &m = op["m"], &summand = op["summand"];
  const MomentumRule<C> rule(op.real("beta"), op.integer("summands"), *op["clip"].as<const double>());
  const std::int64_t row = m.elements();
  parallel_ranges(*context.workers, gradient.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      summand.as<C>()[i] = rule(load(gradient.as<const T>()[i]), m.as<const C>()[i % row]);
  });
}

template <class C>
void frozen_direction(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::FrozenDirection> op(args);
  const Tensor &sum = op["sum"], &m = op["m"], &v = op["v"], &y = op["direction"];
  const bool keep = *op["keep"].as<const double>() != 0;
  const FrozenRule<C> rule(op.real("eps"), op.real("beta"), op.integer("frozen_at"));
  parallel_ranges(*context.workers, m.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const C now = sum.as<const C>()[i];
      y.as<C>()[i] = rule(now, v.as<const C>()[i]);
      if (keep) m.as<C>()[i] = now;
    }
  });
}

Kernel select_keep(const OpShape&) { return keep_summand; }

Kernel select_momentum(const OpShape& shape) {
  const ShapeOf<ops::MomentumSummand> s(shape);
  return choose_value(s["gradient"].dtype, []<class T>() -> Kernel { return momentum_summand<T>; });
}

Kernel select_direction(const OpShape& shape) {
  const ShapeOf<ops::FrozenDirection> s(shape);
  return s["sum"].dtype == DType::f64   ? Kernel(frozen_direction<double>)
         : s["sum"].dtype == DType::f32 ? Kernel(frozen_direction<float>)
                                        : nullptr;
}

}  // namespace

std::vector<KernelDef> summands_kernels();
std::vector<KernelDef> summands_kernels() {
  return {{ops::KeepSummand::kind, select_keep},
          {ops::MomentumSummand::kind, select_momentum},
          {ops::FrozenDirection::kind, select_direction}};
}

}  // namespace prun::cpu::PRUN_ISA
