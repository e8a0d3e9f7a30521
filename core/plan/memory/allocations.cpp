#include "plan/memory/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "plan/memory/region_bytes.hpp"
#include "plan/offsets.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ allocator

// Allocates values in their regions, one after another.
class Allocator {
 public:
  // `base_program`: where persistent values are stored already; may be null.
  Allocator(const Program& program, const Lowering& lowering, const BaseProgram* base_program, Layout& layout)
      : program_(program),
        lowering_(lowering),
        base_program_(base_program),
        layout_(layout),
        sizes_(program.segment_count()) {}

  // Allocates for one repetition of the address's segment.
  Address take(Id value, Region region, Id segment);

  // Returns them by segment.
  std::vector<RegionBytes> sizes() && { return std::move(sizes_); }

 private:
  Address allocation_of_base(Id value) const;
  std::int32_t range_for(Id value, Region region);

  const Program& program_;
  const Lowering& lowering_;
  const BaseProgram* const base_program_;
  Layout& layout_;
  std::vector<RegionBytes> sizes_;
};

Address Allocator::take(Id value, Region region, Id segment) {
  if (base_program_ && lasts(region)) return allocation_of_base(value);
  const std::int32_t range = range_for(value, region);
  const std::int64_t bytes = program_.local_bytes(value);
  const Space space = layout_.ranges[range].place.space;
  const std::int64_t fence = lowering_.fence_in(space);
  std::int64_t& used = sizes_[segment].of(region, range);
  const std::int64_t offset = used + fence;
  used += align(bytes + 2 * fence, space == Space::disk ? drive_alignment : alignment);
  return {region, Whose::own, -1, offset, bytes, no_axis, range};
}

// Returns the allocation of the same value in the base plan.
Address Allocator::allocation_of_base(Id id) const {
  if (base_program_->is_of(program_)) return base_program_->plan.allocation(id);
  const Value& value = program_.value(id);
  const Program& other = base_program_->program;
  for (Id candidate : other.segment(value.segment).values)
    if (other.value(candidate).name == value.name && other.value(candidate).dtype == value.dtype)
      if (const auto allocation = base_program_->plan.allocations.find(candidate);
          allocation != base_program_->plan.allocations.end() &&
          allocation->second.bytes == program_.local_bytes(id))
        return allocation->second;
  throw_error(ErrorCode::internal, "segment '", program_.segment(value.segment).name, "', value '",
              value.name, "' of ", program_.local_bytes(id), " bytes is not in the plan beneath");
}

std::int32_t Allocator::range_for(Id value, Region region) {
  const RegionFacts& facts = facts_of(region);
  const MemoryPlace usual{0, facts.is_staged ? Space::pinned : Space::device};
  return range_of(layout_, facts.may_be_placed ? program_.value(value).place.value_or(usual) : usual);
}

// ------------------------------------------------------------ saved values

// A value that one function of a microbatch keeps for a later one.
struct SavedValue {
  Id value = none;
  FunctionKind writer = FunctionKind::forward;
};

// Returns a segment's activations without an allocation, in the order of their first reads.
std::vector<SavedValue> saved_values(const Program& program, const SegmentData& segment,
                                     const Allocations& allocations) {
  std::vector<SavedValue> saved;
  std::map<Id, FunctionKind> writer;
  const auto is_saved = [&](Id id) {
    return std::any_of(saved.begin(), saved.end(), [&](const SavedValue& one) { return one.value == id; });
  };
  for (FunctionKind kind : {FunctionKind::forward, FunctionKind::put_away, FunctionKind::bring_back,
                            FunctionKind::backward, FunctionKind::backward_weight})
    for (Id op_id : segment.ops(kind)) {
      const Op& op = program.op(op_id);
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        const Id value = op.operands[i];
        if (value == none || program.value(value).role != Role::activation || allocations.count(value) != 0)
          continue;
        if (op.access(i) == Access::write)
          writer[value] = kind;
        else if (writer.at(value) != kind && !is_saved(value))
          saved.push_back({value, writer.at(value)});
      }
    }
  return saved;
}

// Returns what a segment's `speculate` writes and its `settle` reads.
std::vector<Id> held_until_settled(const Program& program, const SegmentData& segment) {
  std::set<Id> written;
  std::vector<Id> held;
  for (const Id id : segment.ops(FunctionKind::speculate))
    for (std::size_t i = 0; i < program.op(id).operands.size(); ++i)
      if (program.op(id).access(i) == Access::write) written.insert(program.op(id).operands[i]);
  for (const Id id : segment.ops(FunctionKind::settle))
    for (const Id value : program.op(id).operands)
      if (value != none && written.erase(value) > 0) held.push_back(value);
  return held;
}

Region region_of(const Value& value) {
  if (value.in_turn) return value.place ? Region::arrived : Region::unreduced;
  switch (value.role) {
    case Role::parameter: return Region::parameter;
    case Role::gradient: return Region::gradient;
    case Role::state: return Region::state;
    case Role::runtime: return Region::runtime;
    case Role::input: return Region::input;
    case Role::fetched: return Region::gathered;
    default: return Region::scratch;
  }
}

Region region_of(ValueLifetime lifetime) {
  switch (lifetime) {
    case ValueLifetime::step: return Region::gradient;
    case ValueLifetime::persistent: return Region::parameter;
    case ValueLifetime::just_in_time: return Region::gathered;
    default: return Region::unreduced;
  }
}

Region region_of_saved(const Value& value, FunctionKind writer) {
  if (!value.in_turn) return Region::slot;
  return writer == FunctionKind::forward ? Region::leaving : Region::returned;
}

// Returns true if the staged value belongs to a microbatch, false if to a step.
bool is_loaded(const Program& program, Id staged) {
  const std::vector<Id>& loads = program.segment(program.step_segment()).ops(FunctionKind::load);
  return std::any_of(loads.begin(), loads.end(),
                     [&](Id op) { return program.op(op).operands.front() == staged; });
}

// Sorts gradients by parameters: merged reductions need them adjacent in the same order on all ranks.
std::vector<Id> in_canonical_order(const Program& program, const std::vector<Id>& values) {
  std::vector<Id> ordered;
  for (Id id : values) {
    const Value& value = program.value(id);
    if (value.role == Role::view || value.view || value.lifetime) continue;
    if (value.role == Role::parameter && value.bucket >= 0) continue;  // quantized data is gathered instead
    if (value.role != Role::activation && (value.role != Role::gradient || (value.in_turn && !value.place)))
      ordered.push_back(id);
    if (value.role == Role::parameter && value.gradient != none) ordered.push_back(value.gradient);
  }
  return ordered;
}

// Refuses to place an adjacent value separately.
void check_places(const Program& program, const Plan& plan) {
  for (const auto& [id, address] : plan.allocations) {
    const Value& value = program.value(id);
    const MemoryPlace lies = plan.layout.ranges[address.range].place;
    if (!value.place || *value.place == lies) continue;
    throw_error(ErrorCode::bad_input, "cannot place '", value.name, "' of segment '",
                program.segment(value.segment).name, "' in ", name_of(value.place->space), " of device ",
                value.place->device, ": all ", name_of(address.region), " are in ", name_of(lies.space),
                " of device ", lies.device, "; place a copy of it");
  }
}

// Returns true for functions at the end of a step: with overlapping steps, they end before those of the next
// step begin.
bool ends_step(const Program& program, FunctionKind kind) {
  return kind == FunctionKind::finish || kind == FunctionKind::diagnose || kind == FunctionKind::report ||
         (is_update(kind) && !program.delays().at_once);
}

// Returns the age in updates of the oldest parameters that passes of a segment read here.
std::int32_t oldest_here(const Plan& plan, Id segment) {
  std::int32_t oldest = 0;
  for (const Instance& instance : plan.instances)
    if (instance.segment == segment && !instance.is_stub()) oldest = std::max(oldest, instance.delay);
  return oldest;
}

class AllocationPlanner {
 public:
  AllocationPlanner(const Program& program, const Lowering& lowering, const BaseProgram* base_program,
                    std::span<const std::int32_t> first_instance, Plan& plan)
      : program_(program),
        lowering_(lowering),
        first_instance_(first_instance),
        plan_(plan),
        allocations_(plan.allocations),
        overlaps_(plan.overlaps),
        room_(program, lowering, base_program, plan.layout) {}

  PlacedAllocations run() {
    find_touched_early();
    for (Id segment = 0; segment < program_.segment_count(); ++segment) place_values(segment);
    return {std::move(around_), std::move(room_).sizes()};
  }

 private:
  // Allocates persistent values, and to activations that outlive their function.
  void place_values(Id segment_id) {
    const SegmentData& segment = program_.segment(segment_id);
    for (Id id : segment.values)
      if (program_.value(id).lifetime) place_around(id, segment_id);
    for (Id id : segment.values)
      if (program_.value(id).view) place_within(id);
    for (Id id : in_canonical_order(program_, segment.values)) place_lasting(id, segment_id);
    place_incoming(segment.incoming, Region::boundary);
    place_incoming(segment.incoming_gradient, Region::boundary_gradient);
    if (segment.outgoing != none) place(segment.outgoing, Region::boundary, segment_id);
    if (segment.outgoing_gradient != none)
      place(segment.outgoing_gradient, Region::boundary_gradient, segment_id);
    for (const CarriedValue& carried : program_.carried())
      if (program_.value(carried.value).segment == segment_id) place_carried(carried, segment_id);
    for (const auto& [id, writer] : saved_values(program_, segment, allocations_))
      place(id, region_of_saved(program_.value(id), writer), segment_id);
    if (lowering_.spare.speculated > 0)
      for (const Id id : held_until_settled(program_, segment)) place_held(id, segment_id);
  }

  // A number is kept from step to step: `speculate` may not be run.
  void place_held(Id id, Id segment) {
    if (program_.value(id).role == Role::activation)
      place(id, program_.value(id).dims.empty() ? Region::gradient : Region::arrived, segment);
  }

  // Allocates a buffer that contains other values.
  void place_around(Id id, Id segment) {
    Address& address = place(id, region_of(*program_.value(id).lifetime), segment);
    name_instance(address, segment);
    around_[id] = address;
  }

  void place_within(Id id) {
    const ViewOf& view = *program_.value(id).view;
    const Address& whole = around_.at(view.whole);
    Address& address = allocations_[id] = around_[id] = whole;
    address.bytes = program_.local_bytes(id);
    address.part_axis = view.part;
    address.offset += view.first * size_of(program_.value(view.whole).dtype);
  }

  // Other segments may use values of unrepeated segments (tied weights), so the address names the instance.
  void name_instance(Address& address, Id segment) const {
    if (program_.segment(segment).repeat > 1) return;
    address.whose = Whose::fixed;
    address.instance = first_instance_[segment];
  }

  Address& place(Id value, Region region, Id segment) {
    return allocations_[value] = room_.take(value, region, segment);
  }

  // Makes one allocation for all readers.
  void place_carried(const CarriedValue& carried, Id segment) {
    for (const Id id : {carried.value, carried.gradient}) {
      if (id == none) continue;
      Address& address = place(id, Region::carried, segment);
      address.whose = Whose::fixed;
      address.instance = plan_.carrier_of(segment);
    }
  }

  void place_lasting(Id id, Id segment) {
    const Value& value = program_.value(id);
    if (value.role == Role::staging) {
      place(id, is_loaded(program_, id) ? Region::batch : Region::scalars, segment);
      return;
    }
    if (const std::int32_t oldest = oldest_here(plan_, segment); value.age > oldest) {
      allocations_[id] = allocations_.at(program_.as_before(value.before_of, oldest));
      return;
    }
    name_instance(place(id, is_in_flight(id) ? Region::in_flight : region_of(value), segment), segment);
  }

  // Returns true if functions touch the value that may run while the step before ends. If each stage updates
  // at once, these are all values that a step does not hand over to the next.
  bool is_in_flight(Id id) const {
    const Value& value = program_.value(id);
    const bool own = value.role == Role::runtime && !value.carried && program_.delays().at_once;
    return overlaps_ && (own || touched_early_.contains(id));
  }

  void find_touched_early() {
    for (Id segment = 0; segment < program_.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind)
        if (!ends_step(program_, static_cast<FunctionKind>(kind)))
          for (const Id op : program_.segment(segment).ops(static_cast<FunctionKind>(kind)))
            for (const Id operand : program_.op(op).operands)
              if (operand != none && program_.value(operand).role == Role::runtime)
                touched_early_.insert(operand);
  }

  // The input of an instance is the output of the one before.
  void place_incoming(Id value, Region region) {
    if (value != none)
      allocations_[value] = {region, Whose::previous, -1, lowering_.fence, program_.local_bytes(value)};
  }

  const Program& program_;
  const Lowering& lowering_;
  std::span<const std::int32_t> first_instance_;
  const Plan& plan_;
  Allocations& allocations_;
  const bool overlaps_;
  std::set<Id> touched_early_;
  Allocations around_;
  Allocator room_;
};

}  // namespace

void forget_older_versions(const Program& program, Plan& plan) {
  if (!program.delays().differ()) return;
  std::erase_if(plan.allocations, [&](const auto& allocation) {
    const Value& value = program.value(allocation.first);
    return value.age > oldest_here(plan, value.segment);
  });
}

PlacedAllocations place_allocations(const Program& program, const Lowering& lowering,
                                    const BaseProgram* base_program,
                                    std::span<const std::int32_t> first_instance, Plan& plan) {
  PlacedAllocations placed = AllocationPlanner(program, lowering, base_program, first_instance, plan).run();
  check_places(program, plan);
  return placed;
}

}  // namespace prun
