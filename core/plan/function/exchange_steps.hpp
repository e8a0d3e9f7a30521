// Steps of a function that ranks meet for.
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// What a comm plugin is asked for to run an op; nothing: it is no exchange. Throws an Error where ranks or
// sizes do not fit. Addresses are the caller's to fill in.
std::optional<PlannedExchange> exchange_of(const Program& program, Id op, const OpShape& shape);

// Gradients that lie side by side travel together: the padding between them is zero on every rank. `fence`:
// bytes kept free around each.
std::vector<PlannedStep> merge_exchanges(const Program& program, std::vector<PlannedStep> steps,
                                         std::int64_t fence);

}  // namespace prun
