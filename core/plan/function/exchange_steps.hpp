// Makes steps of a function in which ranks exchange.
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Returns what a comm plugin has to do to run an op, or nothing if the op is no exchange. Throws an Error
// where ranks or sizes do not fit. The caller fills in addresses.
std::optional<PlannedExchange> exchange_of(const Program& program, Id op, const OpShape& shape);

// Merges exchanges of gradients that lie side by side, so that they travel together: the padding between them
// is zero on every rank. `fence` counts the bytes kept free around each.
std::vector<PlannedStep> merge_exchanges(const Program& program, std::vector<PlannedStep> steps,
                                         std::int64_t fence);

}  // namespace prun
