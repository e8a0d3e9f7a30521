#include "plan/traffic.hpp"

namespace prun {
std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members) {
  const std::int64_t bytes = exchange.count * size_of(exchange.dtype);
  const bool counts_a_part = exchange.kind == CommKind::all_gather ||
                             exchange.kind == CommKind::reduce_scatter ||
                             exchange.kind == CommKind::all_to_all;
  return counts_a_part ? bytes * members : bytes;
}

}  // namespace prun
