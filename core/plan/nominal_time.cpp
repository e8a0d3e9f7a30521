#include "plan/nominal_time.hpp"

#include <algorithm>

namespace prun {
namespace {

// Numbers of a GPU of 2023, with faster links within a host than it has. If an order assumes too little time
// for a collective, microbatches still stay half a layer apart, so that one computes while another
// communicates. If it assumes too much, they communicate at the same time.
constexpr double flops_a_second = 500e12, bytes_a_second = 3e12, seconds_of_a_kernel = 3e-6;
constexpr double exchanged_bytes_a_second = 600e9, seconds_of_an_exchange = 5e-6;

}  // namespace

double nominal_seconds(const Program& program, const PlannedStep& step) {
  if (step.exchange) {
    const std::int64_t bytes = std::max(step.exchange->in.bytes, step.exchange->out.bytes);
    return seconds_of_an_exchange + static_cast<double>(bytes) / exchanged_bytes_a_second;
  }
  if (step.op == none) return seconds_of_a_kernel;
  const Op& op = program.op(step.op);
  const OpCost cost = op.cost(program.local_shape(op));
  return seconds_of_a_kernel + std::max(cost.flops / flops_a_second, cost.bytes / bytes_a_second);
}

}  // namespace prun
