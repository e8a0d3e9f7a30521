#include "plan/plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.hpp"
#include "plan/offsets.hpp"

namespace prun {

// ------------------------------------------------------------------- arena

std::int64_t Memory::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

std::int64_t Layout::bytes_in_memory() const {
  std::int64_t bytes = 0;
  for (const Range& range : ranges)
    if (range.place.space != Space::disk) bytes += range.bytes();
  return bytes;
}

// Transfers of drives read and write host memory too.
std::int64_t Layout::alignment_in(const Range& range) const {
  const bool drives = std::any_of(ranges.begin(), ranges.end(),
                                  [](const Range& other) { return other.place.space == Space::disk; });
  return drives && range.place.space != Space::device ? drive_alignment : alignment;
}

const Layout::Range* Layout::find(std::int64_t offset, std::int64_t bytes) const {
  for (const Range& range : ranges)
    if (range.begin <= offset && offset + bytes <= range.begin + range.bytes()) return &range;
  return nullptr;
}

std::int32_t range_of(Layout& layout, MemoryPlace place) {
  const auto found = std::find_if(layout.ranges.begin(), layout.ranges.end(),
                                  [&](const Layout::Range& range) { return range.place == place; });
  const auto at = static_cast<std::int32_t>(found - layout.ranges.begin());
  if (found == layout.ranges.end()) layout.ranges.emplace_back().place = place;
  return at;
}

// ------------------------------------------------------------------- plan

std::span<const PlannedStep> Plan::steps(const Call& call) const {
  const PlannedFunction& function = functions[call.function];
  const Piece& piece = function.pieces[call.piece];
  return std::span(function.steps)
      .subspan(static_cast<std::size_t>(piece.first), static_cast<std::size_t>(piece.last - piece.first));
}

std::int32_t Plan::find(FunctionKind kind, std::int32_t instance) const {
  const Id segment = instances[instance].segment;
  for (std::size_t f = 0; f < functions.size(); ++f)
    if (functions[f].segment == segment && functions[f].kind == kind &&
        (functions[f].delay < 0 || functions[f].delay == instances[instance].delay))
      return static_cast<std::int32_t>(f);
  return -1;
}

std::int32_t Plan::speculated() const {
  std::set<std::int32_t> updated;
  for (const Call& call : calls)
    if (functions[call.function].kind == FunctionKind::settle) updated.insert(call.instance);
  return static_cast<std::int32_t>(updated.size());
}

std::int32_t Plan::carrier_of(Id segment) const {
  for (std::size_t i = 0; i < instances.size(); ++i)
    if (instances[i].segment == segment && instances[i].held != HeldPart::boundary)
      return static_cast<std::int32_t>(i);
  return -1;
}

std::vector<int> QueueInfo::members(const Mesh& mesh, std::int64_t rank) const {
  if (!communicates()) return {};
  const std::vector<int> group = mesh.group(rank, axis);
  if (peer < 0) return group;
  const int other = group[peer], own = static_cast<int>(rank);
  return {std::min(own, other), std::max(own, other)};
}

std::int32_t Plan::save_read_of(const PersistentValue& value) const {
  for (std::size_t read = 0; read < save_reads.size(); ++read)
    if (std::binary_search(save_reads[read].begin(), save_reads[read].end(), value))
      return static_cast<std::int32_t>(read);
  PRUN_CHECK(save_reads.empty(), "no save reads value ", value.value, " of instance ", value.instance);
  return 0;
}

const Address& Plan::allocation(Id value) const {
  const auto found = allocations.find(value);
  PRUN_CHECK(found != allocations.end(), "value ", value, " has no home");
  return found->second;
}

std::int64_t Plan::resolve(std::int32_t instance, const Address& allocation) const {
  PRUN_CHECK(lasts(allocation.region), "what lies in ", name_of(allocation.region),
             " is not there from step to step");
  Call call;
  call.instance = instance;
  return resolve(call, allocation, 0);
}

std::int64_t Plan::part_of(const Address& address) const {
  if (address.part_axis == no_axis) return 0;
  if (address.part_axis < coordinates.size()) return coordinates[address.part_axis];
  std::int64_t at = 0;
  for (const AxisId axis : axes_of(address.part_axis)) at = at * extents[axis] + coordinates[axis];
  return at;
}

std::int64_t Plan::parts_of(const Address& address) const {
  if (address.part_axis == no_axis) return 1;
  if (address.part_axis < extents.size()) return extents[address.part_axis];
  std::int64_t parts = 1;
  for (const AxisId axis : axes_of(address.part_axis)) parts *= extents[axis];
  return parts;
}

std::int64_t Plan::input_slot_of(const Call& call, int side) const {
  return (call.microbatch + (overlaps ? side * microbatches : 0)) % input_slots;
}

std::int32_t Plan::depth() const {
  std::int32_t most = 0;
  for (const Call& call : calls) most = std::max(most, call.behind);
  return most;
}

std::int64_t Plan::resolve(const Call& call, const Address& address, int side) const {
  std::int32_t instance = call.instance;
  if (address.whose == Whose::previous) --instance;
  if (address.whose == Whose::fixed) instance = address.instance;
  const Layout::Range& range = layout.ranges[address.range];
  const auto of_instance = [&] { return range.instances[address.region][instance]; };
  const std::int64_t part = part_of(address) * address.bytes;
  side = side_of(call, side);
  switch (facts_of(address.region).indexed_by) {
    case IndexedBy::instance: return of_instance().base + side * of_instance().stride + address.offset + part;
    case IndexedBy::turn:
      return of_instance().base + turn_of(instance, call.slot) * of_instance().stride + address.offset;
    case IndexedBy::slot: {
      const bool stub = instances[instance].is_stub();
      const std::int32_t slot = stub ? call.stub_slot * received_copies + side % received_copies
                                     : call.slot * slot_copies + side % slot_copies;
      return of_instance().base + slot * of_instance().stride + address.offset;
    }
    case IndexedBy::carried:
      return of_instance().base + call.carried_slot * of_instance().stride + address.offset;
    case IndexedBy::range:
      return (address.region == Region::runtime ? range.runtime : range.workspace) + address.offset;
    case IndexedBy::interleaved:
      return range.scratch.base + call.slot * range.scratch.stride + address.offset;
    case IndexedBy::input_slot:
      return layout.input.base + input_slot_of(call, side) * layout.input.stride + address.offset;
    case IndexedBy::microbatch:
      return layout.batch.base + side * layout.batch_side + call.microbatch * layout.batch.stride +
             address.offset;
    case IndexedBy::step: return range.in_flight.base + side * range.in_flight.stride + address.offset;
    case IndexedBy::side: return layout.scalars.base + side * layout.scalars.stride + address.offset;
    case IndexedBy::nothing: break;
  }
  return -1;
}

namespace {

// ------------------------------------------------------------------- call text

std::string exchange_name(const Plan& plan, const Call& call) {
  const std::span<const PlannedStep> steps = plan.steps(call);
  double bytes = 0;
  for (const PlannedStep& step : steps) bytes += step.exchange->count * size_of(step.exchange->dtype);
  const std::string times = steps.size() > 1 ? std::to_string(steps.size()) + " x " : "";
  return times + name_of(steps.front().exchange->kind) + " " + plan.queues[call.queue].name + " " +
         size_text(bytes);
}

}  // namespace

std::string call_text(const Program& program, const Plan& plan, const Call& call) {
  const PlannedFunction& function = plan.functions[call.function];
  const Instance& instance = plan.instances[call.instance];
  const SegmentData& segment = program.segment(instance.segment);
  std::string text = detail::concat(name_of(function.kind), ' ', segment.name);
  if (segment.repeat > 1) text += detail::concat('.', instance.layer);
  if (function.joins.size() > 1) text += detail::concat(" and ", function.joins.size() - 1, " more");
  if (call.microbatch >= 0) text += detail::concat(" mb ", call.microbatch);
  return text;
}

std::string call_name(const Program& program, const Plan& plan, const Call& call) {
  const std::span<const PlannedStep> steps = plan.steps(call);
  if (!steps.empty() && steps.front().exchange) return exchange_name(plan, call);
  return call_text(program, plan, call);
}

// ------------------------------------------------------------------- base program

void make_room(Plan& plan, const Plan& above) {
  for (std::size_t r = 0; r < above.layout.ranges.size(); ++r) {
    const Layout::Range& needs = above.layout.ranges[r];
    if (r == plan.layout.ranges.size()) {
      Layout::Range& fresh = plan.layout.ranges.emplace_back();
      fresh.place = needs.place;
      fresh.begin = needs.begin;
    }
    Layout::Range& has = plan.layout.ranges[r];
    const std::int64_t more = std::max<std::int64_t>(0, needs.bytes() - has.bytes());
    has.memory.bytes[Region::others] += more;
    plan.layout.memory.bytes[Region::others] += more;
  }
}

}  // namespace prun
