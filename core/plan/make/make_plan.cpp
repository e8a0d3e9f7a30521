#include "plan/make/make_plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "plan/function/plan_function.hpp"
#include "plan/launch_limit.hpp"
#include "plan/memory/memory.hpp"
#include "plan/order/order.hpp"
#include "plan/order/overlap.hpp"
#include "plan/proof/check_plan.hpp"
#include "plan/work.hpp"

namespace prun {
namespace {

// Sets how many copies of memory overlapping steps need. Steps of one microbatch that are updated at once are
// as many as stages come behind, each with separate slots; for the others, a gradient outlasts the step.
void set_copies(const Period& period, Plan& plan) {
  plan.running = period.running;
  if (period.at_once) {
    plan.slot_copies = period.steps();
    // Two steps that follow each other differ in their copy's parity as well.
    const std::int32_t unit = std::lcm(2, plan.slot_copies);
    plan.staging_copies = (period.running + unit - 1) / unit * unit;
    plan.received_copies = plan.staging_copies;
  } else {
    plan.gradient_copies = 2;
  }
  plan.input_slots = plan.staging_copies * plan.microbatches;
}

// Begins a plan, with the queues and ranges that every plan has.
Plan begin_plan(const Program& program, std::int64_t microbatches, std::int64_t rank, const Work& work,
                const BaseProgram* base_program) {
  Plan plan;
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis) {
    plan.coordinates.push_back(program.mesh().coordinate(rank, axis));
    plan.extents.push_back(program.mesh().extent(axis));
  }
  plan.microbatches = microbatches;
  plan.interleave = work.interleave;
  plan.overlaps = !work.period.passes.empty();
  // A pipeline comes back to each instance later. Microbatches that go side by side come before the next
  // ones.
  if (work.interleaves())
    plan.input_slots =
        work.interleave > 1 ? std::min<std::int64_t>(microbatches, 2 * work.interleave) : microbatches;
  if (plan.overlaps) set_copies(work.period, plan);
  plan.queues = {{"compute", true, no_axis, 0, -1, 0}, {"copy", false, no_axis, 0, -1, 0}};
  for (const Space space : {Space::device, Space::pinned}) range_of(plan.layout, {0, space});
  if (base_program)
    for (const Layout::Range& range : base_program->plan.layout.ranges) range_of(plan.layout, range.place);
  return plan;
}

// Returns the delays of a segment's instances on this rank, each once: a function is planned for each. -1:
// one for all.
std::vector<std::int32_t> delays_in(const Program& program, const Plan& plan, Id segment, FunctionKind kind) {
  const bool by_delay = kind == FunctionKind::forward || kind == FunctionKind::backward ||
                        kind == FunctionKind::backward_weight || is_optimizer(kind);
  if (!program.delays().differ() || !by_delay || segment == program.step_segment()) return {-1};
  std::set<std::int32_t> delays;
  for (const Instance& instance : plan.instances)
    if (instance.segment == segment && !instance.is_stub()) delays.insert(instance.delay);
  return {delays.begin(), delays.end()};
}

// Returns false for functions that a step never calls.
bool is_called(const Program& program, const Work& work, const Lowering& lowering, Id segment,
               FunctionKind kind, std::int64_t microbatches) {
  const std::vector<Id>& ops = program.segment(segment).ops(kind);
  if (ops.empty() || !work.runs(kind)) return false;
  if (kind == FunctionKind::speculate || kind == FunctionKind::settle)
    return lowering.spare.speculated > 0 || segment == program.step_segment();
  return microbatches > 1 || kind != FunctionKind::clear || !program.op(ops.front()).def->copies;
}

// Leaves out segments that are entirely on other ranks.
void plan_functions(const Program& program, const Work& work, const Lowering& lowering,
                    const Allocations& around, std::span<const std::int32_t> first_instance, Plan& plan) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (int k = 0; first_instance[segment] >= 0 && k < function_kinds; ++k)
      if (const auto kind = static_cast<FunctionKind>(k);
          is_called(program, work, lowering, segment, kind, plan.microbatches))
        for (const std::int32_t delay : delays_in(program, plan, segment, kind))
          plan.functions.push_back(plan_function(program, lowering, around, segment, kind, delay, plan));
  forget_older_versions(program, plan);
}

Bundles choose_bundles(const Plan& plan, const Work& work, const Lowering& lowering) {
  const auto bundling = [&](FunctionKind kind) { return Bundling(plan, kind, lowering.bundle); };
  std::vector<std::int32_t> updated = held_instances(plan);
  std::erase_if(updated, [&](std::int32_t i) { return plan.find(FunctionKind::update, i) < 0; });
  GatheredUses uses = gathered_uses(plan, work, bundling(FunctionKind::gather));
  const std::vector<std::int32_t> renewed = renewed_in_order(plan, uses);
  return {std::move(uses), reduced_together(plan, work, bundling(FunctionKind::reduce)),
          bundling(FunctionKind::update).of(updated), bundling(FunctionKind::renew).of(renewed)};
}

}  // namespace

Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
               std::int64_t rank) {
  check_launches(program, microbatches);
  return make_plan(program, lowering, microbatches, rank, whole_work(program, microbatches));
}

PlanOutline outline_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
                         std::int64_t rank, const Work& work) {
  PlanOutline outline{begin_plan(program, microbatches, rank, work, nullptr), {}};
  Plan& plan = outline.plan;
  const std::vector<std::int32_t> first_instance = make_instances(program, work, plan);
  PlacedAllocations placed = place_allocations(program, lowering, nullptr, first_instance, plan);
  add_tie_queue(program, work, plan);
  plan_functions(program, work, lowering, placed.around, first_instance, plan);
  outline.sizes = std::move(placed.sizes);
  return outline;
}

Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
               const Work& work, const BaseProgram* base_program, Proof proof) {
  check_launches(program, microbatches);
  PRUN_CHECK(lowering.devices.size() == program.requests().more_devices.size() + 1, lowering.devices.size(),
             " devices");
  Plan plan = begin_plan(program, microbatches, rank, work, base_program);
  const std::vector<std::int32_t> first_instance = make_instances(program, work, plan);
  const auto [around, sizes] = place_allocations(program, lowering, base_program, first_instance, plan);
  add_tie_queue(program, work, plan);
  plan_functions(program, work, lowering, around, first_instance, plan);
  plan_transfers(program, work, plan);
  divide_at_first_steps(program, plan);
  mark_dead_sums(program, plan);
  check_can_be_counted(plan, sizes);
  const Bundles bundles = choose_bundles(plan, work, lowering);
  const TimeSlots gathered = gathered_time_slots(bundles.uses, made_here(program, plan),
                                                 bytes_by_instance(plan, sizes, Region::gathered, 0));
  const TimeSlots unreduced =
      unreduced_time_slots(plan, work, bundles.reduced, bytes_by_instance(plan, sizes, Region::unreduced, 0));
  order_calls(work, carried_spans(program), bundles, gathered, lowering.spare.speculated, plan);
  choose_first_writers(program, plan);
  begin_carried_sums(program, plan);
  limit_to_first_steps(program, plan);
  if (plan.overlaps) read_what_is_there(program, plan);
  place_regions(program, work, sizes, {gathered, unreduced, bundles.reduced, lowering.spare.far_ahead},
                base_program, plan);
  mark_dead_slots(program, plan);
  if (work.interleave > 1) order_interleaved(program, plan);
  derive_waits(program, plan);
  // While steps overlap, a save waits until no step runs.
  if (lowering.saves_beside && !plan.overlaps) derive_save_reads(program, rank, plan, base_program);
  if (proof == Proof::left_out) return plan;
  check_plan(program, plan);
  if (base_program) check_over(program, plan, *base_program);
  return plan;
}

}  // namespace prun
