// Shows what a plan says of a run before it runs, as sections of a page: memory and its peak, timeline,
// traffic, and predicted numbers beside measured ones.
#pragma once

#include <optional>

#include "estimate/forecast.hpp"
#include "report/page.hpp"
#include "runs/log.hpp"

namespace prun {

// Returns, for a rank on the host, the bytes of its plan and its process together.
inline std::int64_t planned_bytes(const RankMemory& rank) { return rank.plan_bytes + rank.process_bytes; }

// `log` is that of the run that was planned so; null: there is none yet.
void add_plan(Html& page, const Assembly& assembly, PluginHost& plugins, const Forecast& forecast,
              const RunLog* log);

}  // namespace prun
