#include "plan/traffic.hpp"

namespace prun {
namespace {

// Of the bytes an exchange is about, how many times each member sends them, as rings do it.
double share_sent(CommKind kind, std::int64_t members) {
  const double others = static_cast<double>(members - 1) / static_cast<double>(members);
  switch (kind) {
    case CommKind::all_reduce: return 2 * others;
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::broadcast:
    case CommKind::all_to_all: return others;
    case CommKind::send: return 1;
    case CommKind::recv:
    case CommKind::barrier: return 0;
  }
  return 0;
}

}  // namespace

std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members) {
  const std::int64_t bytes = exchange.count * size_of(exchange.dtype);
  const bool counts_a_part = exchange.kind == CommKind::all_gather ||
                             exchange.kind == CommKind::reduce_scatter ||
                             exchange.kind == CommKind::all_to_all;
  return counts_a_part ? bytes * members : bytes;
}

double planned_bytes(const Mesh& mesh, const Plan& plan, std::int32_t queue) {
  const std::int32_t axis = plan.queues[static_cast<std::size_t>(queue)].axis;
  if (axis < 0) return 0;
  const std::int64_t members = mesh.extent(static_cast<std::size_t>(axis));
  double sent = 0;
  for (const Call& call : plan.calls) {
    if (call.queue != queue) continue;
    for (const PlannedStep& step : plan.steps(call))
      if (step.exchange)
        sent += share_sent(step.exchange->kind, members) *
                static_cast<double>(exchange_bytes(*step.exchange, members));
  }
  return sent;
}

}  // namespace prun
