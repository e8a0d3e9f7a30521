#include "plan/nominal_time.hpp"

#include <algorithm>

namespace prun {
namespace {

// Of a GPU of 2023 and its links within a host. What counts is how they compare.
constexpr double flops_a_second = 500e12, bytes_a_second = 3e12;
constexpr double exchanged_bytes_a_second = 300e9, seconds_of_an_exchange = 10e-6;

}  // namespace

double nominal_seconds(const Program& program, const PlannedStep& step) {
  if (step.exchange) {
    const std::int64_t bytes = std::max(step.exchange->in.bytes, step.exchange->out.bytes);
    return seconds_of_an_exchange + static_cast<double>(bytes) / exchanged_bytes_a_second;
  }
  if (step.op == none) return 0;
  const Op& op = program.op(step.op);
  const OpCost cost = op.cost(program.local_shape(op));
  return std::max(cost.flops / flops_a_second, cost.bytes / bytes_a_second);
}

}  // namespace prun
