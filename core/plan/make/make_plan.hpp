// Makes a rank's plan of its program.
#pragma once

#include <cstdint>

#include "plan/beneath.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "plan/work.hpp"

namespace prun {

// Throws an Error naming what does not fit.
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
               std::int64_t rank = 0);
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
               const Work& work, const Beneath* beneath = nullptr);

}  // namespace prun
