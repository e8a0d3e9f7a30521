// Makes a rank's plan: instances, allocations, functions, calls with waits, addresses, and the proof.
// Example: make_plan() of a program with 32 layers plans each function of `block` once, then orders 32 ×
// microbatches calls of it.
#pragma once

#include <cstdint>

#include <vector>

#include "plan/memory/region_bytes.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "plan/work.hpp"

namespace prun {

// Throws an Error that names what does not fit.
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
               std::int64_t rank = 0);
// A plan without proof is one of many that are compared, and must not run.
enum class Proof : std::uint8_t { whole, left_out };
Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
               const Work& work, const BaseProgram* base_program = nullptr, Proof proof = Proof::whole);

// The first part of a plan: functions with their steps, and bytes of each instance, without calls. Its cost
// depends on the size of the program only.
struct PlanOutline {
  Plan plan;
  std::vector<RegionBytes> sizes;  // by segment
};
PlanOutline outline_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
                         std::int64_t rank, const Work& work);

}  // namespace prun
