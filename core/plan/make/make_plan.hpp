// Makes a rank's plan of its program.
#pragma once

#include <cstdint>

#include <vector>

#include "plan/base_program.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "plan/work.hpp"

namespace prun {

// Makes the plan. Throws an Error naming what does not fit.
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
               std::int64_t rank = 0);
// An unproven plan is one of many that are compared, and must not be run.
enum class Proof : std::uint8_t { whole, left_out };
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
               const Work& work, const BaseProgram* base_program = nullptr, Proof proof = Proof::whole);

// Holds what a plan begins with, before any call has a place: functions with their steps, and what each
// instance of a segment keeps. Making it costs what the program's size does, however many layers and
// microbatches there are.
struct PlanOutline {
  Plan plan;
  std::vector<RegionBytes> sizes;  // listed by segment
};
PlanOutline outline_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
                         std::int64_t rank, const Work& work);

}  // namespace prun
