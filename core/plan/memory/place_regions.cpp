#include <algorithm>
#include <map>

#include "base/narrow.hpp"
#include "plan/memory/memory.hpp"
#include "plan/memory/region_bytes.hpp"
#include "plan/work.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- place regions

// ------------------------------------------------------------ region needs

// Computes bytes of each region for a plan's instances and functions, and the number of slots.
class RegionNeeds {
 public:
  // `sizes`: by segment. Needs plan.chunks and plan.functions.
  RegionNeeds(const Program& program, const Work& work, std::span<const RegionBytes> sizes, const Plan& plan)
      : program_(program), work_(work), sizes_(sizes), plan_(plan) {}

  // Returns the bytes of each instance in a range; most_of() is their maximum.
  std::vector<std::int64_t> bytes_of(Region region, std::int32_t range) const {
    return bytes_by_instance(plan_, sizes_, region, range);
  }
  std::int64_t most_of(Region region, std::int32_t range) const;
  // Returns the bytes that belong to no instance.
  std::int64_t step_bytes(Region region, std::int32_t range) const {
    return sizes_[program_.step_segment()].of(region, range);
  }

  // Returns the scratch of the function that needs most: values that no other function reads, and workspaces.
  std::int64_t most_scratch(std::int32_t range) const;
  std::int64_t most_workspace(std::int32_t range) const;
  // Returns them by instance, for functions that run concurrently with others.
  std::vector<std::int64_t> scratch_by_instance(Region region, std::int32_t range) const;

  std::int64_t slots_of(std::size_t instance) const;
  // Returns how many microbatches one instance runs before the next instance begins.
  std::int64_t slots_at_once() const;

  // Returns true if an instance's output is needed only by the next instance and the copy that offloads it,
  // since backward reads what is fetched. During that copy two more instances can compute.
  bool boundaries_pass_on() const;
  // Returns true if the gradient of an instance's output outlives the backward that makes it: another stage
  // needs it, or weight gradients are computed later.
  bool boundary_gradient_lasts(std::size_t instance) const;

 private:
  const Chunk* chunk_of(std::size_t instance) const;

  const Program& program_;
  const Work& work_;
  std::span<const RegionBytes> sizes_;
  const Plan& plan_;
};

std::int64_t in_range(const std::vector<std::int64_t>& by_range, std::int32_t range) {
  const auto index = static_cast<std::size_t>(range);
  return index < by_range.size() ? by_range[index] : 0;
}

std::int64_t RegionNeeds::most_of(Region region, std::int32_t range) const {
  const std::vector<std::int64_t> bytes = bytes_of(region, range);
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

std::int64_t RegionNeeds::most_scratch(std::int32_t range) const {
  std::int64_t most = 0;
  for (const PlannedFunction& function : plan_.functions)
    if (function.scratch == Region::scratch) most = std::max(most, in_range(function.scratch_bytes, range));
  return most;
}

std::int64_t RegionNeeds::most_workspace(std::int32_t range) const {
  std::int64_t most = 0;
  for (const PlannedFunction& function : plan_.functions)
    most = std::max(most, in_range(function.workspace_bytes, range));
  return most;
}

std::vector<std::int64_t> RegionNeeds::scratch_by_instance(Region region, std::int32_t range) const {
  std::vector<std::int64_t> bytes(plan_.instances.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const PlannedFunction& function : plan_.functions)
      if (function.scratch == region && function.segment == plan_.instances[i].segment &&
          !plan_.instances[i].is_stub())
        bytes[i] = in_range(function.scratch_bytes, range);
  return bytes;
}

const Chunk* RegionNeeds::chunk_of(std::size_t instance) const {
  const auto at = static_cast<std::int32_t>(instance);
  for (const Chunk& chunk : plan_.chunks)
    if (at == chunk.stub || (chunk.first <= at && at < chunk.last)) return &chunk;
  return nullptr;
}

std::int64_t RegionNeeds::slots_of(std::size_t instance) const {
  const Chunk* chunk = chunk_of(instance);
  if (!chunk) return 1;
  if (!plan_.instances[instance].is_stub()) return chunk->slots * plan_.slot_copies;
  return plan_.received_copies > 1 ? plan_.received_copies : chunk->slots + 1;
}

std::int64_t RegionNeeds::slots_at_once() const {
  if (plan_.interleave > 1) return plan_.interleave;
  return work_.axis == no_axis && work_.interleaves() ? plan_.microbatches : 1;
}

bool RegionNeeds::boundaries_pass_on() const {
  bool away = false, passes = work_.axis == no_axis;
  for (const PlannedFunction& function : plan_.functions) {
    away |= function.kind == FunctionKind::put_away;
    const bool forward = function.kind == FunctionKind::forward || function.kind == FunctionKind::put_away;
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        passes &= forward || operand.value == none || operand.address.region != Region::boundary;
  }
  return away && passes;
}

bool RegionNeeds::boundary_gradient_lasts(std::size_t instance) const {
  const Chunk* chunk = chunk_of(instance);
  return chunk && work_.axis != no_axis &&
         (work_.split || plan_.instances[instance].is_stub() ||
          static_cast<std::int32_t>(instance) + 1 == chunk->last);
}

// Saturates at the largest number, which is refused when it is placed.
std::int64_t times(std::int64_t count, std::int64_t bytes) {
  return saturated_product(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(bytes));
}

class Regions {
 public:
  Regions(const RegionNeeds& needs, const Program& program, const BaseProgram* base_program, Plan& plan)
      : needs_(needs),
        base_program_(base_program ? &base_program->plan.layout : nullptr),
        again_(base_program && base_program->is_of(program)),
        plan_(plan) {}

  // Places all regions; persistent values come first.
  void place(const SharedInTime& in_turn) {
    for (range_ = 0; range_ < static_cast<std::int32_t>(plan_.layout.ranges.size()); ++range_) {
      here().begin = end_ = range_ * range_distance;
      const bool shared = base_program_ && static_cast<std::size_t>(range_) < base_program_->ranges.size();
      if (shared) share(base_program_->ranges[range_]);
      for (Region region : {Region::parameter, Region::state, Region::gradient})
        if (!shared) place_per_instance(region);
      if (shared && !again_) keep_clear_of(base_program_->ranges[range_]);
      place_values_of_step();
      if (shared && again_) keep_clear_of(base_program_->ranges[range_]);
      here().kept = end_ - here().begin;
      if (range_ == 0 && needs_.boundaries_pass_on())
        place_in_turn(Region::boundary, needs_.most_of(Region::boundary, range_), 3, needs_.slots_at_once());
      else
        place_per_slot(Region::boundary);
      place_per_slot(Region::slot);
      if (range_ == 0) {
        place_carried();
        place_boundary_gradients();
        place_saved_in_turn();
        place_time_slots(Region::gathered, in_turn.gathered);
      }
      place_time_slots(Region::bucket, bucket_time_slots(in_turn.reduced,
                                                         needs_.scratch_by_instance(Region::bucket, range_)));
      place_time_slots(
          Region::update,
          update_time_slots(plan_, needs_.scratch_by_instance(Region::update, range_), in_turn.far_ahead));
      place_time_slots(Region::arrived, arrived_time_slots(plan_, needs_.bytes_of(Region::arrived, range_)));
      place_inputs();
      place_scratch();
      here().workspace = take(Region::workspace, needs_.most_workspace(range_));
      if (range_ == 0) place_unreduced(in_turn.unreduced);
    }
  }

 private:
  Layout::Range& here() { return plan_.layout.ranges[range_]; }

  std::int64_t take(Region region, std::int64_t needed) {
    const std::int64_t at = end_, alignment = plan_.layout.alignment_in(here());
    if (needed >= range_distance - (end_ - here().begin) - alignment) refuse_more_than_addresses();
    const std::int64_t bytes = align(needed, alignment);
    end_ += bytes;
    here().memory.bytes[region] += bytes;
    plan_.layout.memory.bytes[region] += bytes;
    return at;
  }

  void share(const Layout::Range& under) {
    for (Region region : {Region::parameter, Region::state, Region::gradient}) {
      placed(region) = under.instances[region];
      take(region, under.memory.bytes[region]);
    }
  }

  // Skips what the base program keeps.
  void keep_clear_of(const Layout::Range& under) {
    const std::int64_t left = here().begin + under.kept - end_;
    PRUN_CHECK(left >= 0, "range ", range_, ": a step keeps ", -left, " bytes more than the plan beneath");
    take(Region::others, left);
  }

  Numbered<Layout::Strided>& placed(Region region) { return here().instances[region]; }

  void place_per_instance(Region region) {
    const std::int32_t copies = region == Region::gradient ? plan_.gradient_copies : 1;
    for (const std::int64_t bytes : needs_.bytes_of(region, range_))
      placed(region).push_back(copies > 1 ? take_copies(region, bytes, copies)
                                          : Layout::Strided{take(region, bytes), 0});
  }

  Layout::Strided take_copies(Region region, std::int64_t bytes, std::int32_t copies) {
    const std::int64_t each = align(bytes, plan_.layout.alignment_in(here()));
    return {take(region, times(copies, each)), each};
  }

  void place_per_slot(Region region) {
    const std::vector<std::int64_t> bytes = needs_.bytes_of(region, range_);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      placed(region).push_back({take(region, times(needs_.slots_of(i), bytes[i])), bytes[i]});
  }

  void place_carried() {
    for (const std::int64_t bytes : needs_.bytes_of(Region::carried, range_))
      placed(Region::carried).push_back({take(Region::carried, times(plan_.carried_slots, bytes)), bytes});
  }

  void place_time_slots(Region region, const TimeSlots& time_slots) {
    const std::int64_t base = take(region, time_slots.offsets.bytes);
    for (const std::int64_t offset : time_slots.offsets.of) placed(region).push_back({base + offset, 0});
  }

  // Each interleaved microbatch has scratch.
  void place_scratch() {
    const std::int64_t each = align(needs_.most_scratch(range_), plan_.layout.alignment_in(here()));
    here().scratch = {take(Region::scratch, plan_.interleave * each), plan_.interleave > 1 ? each : 0};
  }

  // Local gradients start where scratch starts, and end where they end; after the scratch of interleaved
  // microbatches, which may all be in use.
  void place_unreduced(const TimeSlots& time_slots) {
    const std::int64_t base = plan_.interleave > 1 ? end_ : here().scratch.base;
    take(Region::unreduced, std::max<std::int64_t>(0, base + time_slots.offsets.bytes - end_));
    for (const std::int64_t offset : time_slots.offsets.of)
      placed(Region::unreduced).push_back({base + offset, 0});
  }

  // Places buffers that instances reuse, with slots.
  void place_in_turn(Region region, std::int64_t bytes, std::size_t buffers, std::int64_t slots) {
    const auto size = times(slots, bytes),
               base = take(region, times(static_cast<std::int64_t>(buffers), size));
    for (std::size_t i = 0; i < plan_.instances.size(); ++i)
      placed(region).push_back({base + static_cast<std::int64_t>(i % buffers) * size, slots > 1 ? bytes : 0});
  }

  // Values before offload and after fetch share memory.
  void place_saved_in_turn() {
    const std::int64_t leaving = needs_.most_of(Region::leaving, range_),
                       returned = needs_.most_of(Region::returned, range_),
                       bytes = std::max(leaving, returned);
    const std::int64_t base = take(Region::leaving, 2 * bytes);
    for (Region region : {Region::leaving, Region::returned})
      placed(region).assign(plan_.instances.size(), Layout::Strided{base, bytes});
  }

  // Backward reads the gradient of one boundary and writes that of the one before.
  void place_boundary_gradients() {
    const std::vector<std::int64_t> bytes = needs_.bytes_of(Region::boundary_gradient, range_);
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (!needs_.boundary_gradient_lasts(i)) largest = std::max(largest, bytes[i]);
    place_in_turn(Region::boundary_gradient, largest, 2, needs_.slots_at_once());
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (needs_.boundary_gradient_lasts(i))
        placed(Region::boundary_gradient)[i] = {
            take(Region::boundary_gradient, times(needs_.slots_of(i), bytes[i])), bytes[i]};
  }

  void place_values_of_step() {
    Layout& layout = plan_.layout;
    here().runtime = take(Region::runtime, needs_.step_bytes(Region::runtime, range_));
    here().in_flight =
        take_copies(Region::in_flight, needs_.step_bytes(Region::in_flight, range_), plan_.staging_copies);
    if (range_ != 1) return;
    layout.batch_side = times(plan_.microbatches, needs_.step_bytes(Region::batch, range_));
    layout.batch = {take(Region::batch, times(plan_.staging_copies, layout.batch_side)),
                    needs_.step_bytes(Region::batch, range_)};
    layout.scalars = {
        take(Region::scalars, plan_.staging_copies * needs_.step_bytes(Region::scalars, range_)),
        needs_.step_bytes(Region::scalars, range_)};
  }

  void place_inputs() {
    const std::int64_t bytes = needs_.step_bytes(Region::input, range_);
    if (range_ == 0) plan_.layout.input = {take(Region::input, times(plan_.input_slots, bytes)), bytes};
  }

  const RegionNeeds needs_;
  const Layout* const base_program_;
  const bool again_;  // over a plan of the same program
  Plan& plan_;
  std::int32_t range_ = 0;
  std::int64_t end_ = 0;  // end of what is placed
};

}  // namespace

void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const SharedInTime& in_turn, const BaseProgram* base_program, Plan& plan) {
  Regions(RegionNeeds(program, work, sizes, plan), program, base_program, plan).place(in_turn);
}

namespace {

// ------------------------------------------------------------------- last uses

bool is_backward(FunctionKind kind) {
  return kind == FunctionKind::backward || kind == FunctionKind::backward_weight;
}

// Returns true if the value is a bucket's local gradients, or the shard of their sum.
bool hands_over(const Program& program, const Bucket& bucket, Id id) {
  const std::optional<ViewOf>& view = program.value(id).view;
  return id == bucket.all_gradients || (view && view->whole == bucket.all_gradients && view->is_part());
}

// Sums of a microbatch are dead once they are reduced.
void mark_dead_blocks(const Program& program, const Bucket& bucket, Plan& plan) {
  PlannedStep* last = nullptr;
  for (PlannedFunction& function : plan.functions)
    if (function.segment == bucket.segment && function.kind == FunctionKind::reduce)
      for (PlannedStep& step : function.steps)
        for (const PlannedOperand& operand : step.operands)
          if (operand.value != none && hands_over(program, bucket, operand.value)) last = &step;
  for (std::size_t m = 0; last && m < bucket.parameters.size(); ++m)
    last->dead_after.push_back(plan.allocation(program.value(bucket.parameters[m]).gradient));
}

// Values in buffers that layers reuse are dead after the copy that reads them.
void mark_dead_in_turn(const Program& program, Plan& plan) {
  for (PlannedFunction& function : plan.functions)
    for (PlannedStep& step : function.steps)
      if (function.kind == FunctionKind::reduce && step.kernel && program.op(step.op).def->copies &&
          program.value(step.operands.front().value).in_turn)
        step.dead_after.push_back(step.operands.front().address);
}

PlannedStep* first_of_step(Plan& plan) {
  for (PlannedFunction& function : plan.functions)
    if (function.kind == FunctionKind::begin) return &function.steps.front();
  return nullptr;
}

bool is_sum_of_step(const Program& program, Id id) {
  const Value& value = program.value(id);
  if (value.bucket < 0) return value.role == Role::gradient && !value.in_turn;
  const Bucket& bucket = program.bucket_of(value);
  return keeps_summed_parts(program, bucket) ? id == bucket.own_gradients : value.role == Role::gradient;
}

// Gradients of a step are dead when the next begins, since the host may read them in between; except those
// copied to another device for updates, for which the next step would have to wait.
void mark_dead_sums_of_step(const Program& program, Plan& plan) {
  PlannedStep* const begin = first_of_step(plan);
  if (!begin) return;
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    const Instance& instance = plan.instances[i];
    const SegmentData& segment = program.segment(instance.segment);
    if (instance.is_stub() || segment.device_of(FunctionKind::update) != 0) continue;
    for (Id id : segment.values)
      if (const auto allocation = plan.allocations.find(id);
          allocation != plan.allocations.end() && is_sum_of_step(program, id)) {
        begin->dead_after.push_back(allocation->second);
        begin->dead_after.back().whose = Whose::fixed;
        begin->dead_after.back().instance = static_cast<std::int32_t>(i);
      }
  }
}

}  // namespace

void mark_dead_sums(const Program& program, Plan& plan) {
  for (const Bucket& bucket : program.buckets())
    if (keeps_summed_parts(program, bucket)) mark_dead_blocks(program, bucket, plan);
  mark_dead_in_turn(program, plan);
  mark_dead_sums_of_step(program, plan);
}

// A saved value is dead after its last reader in backward or backward_weight.
void mark_dead_slots(const Program& program, Plan& plan) {
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    std::map<Id, PlannedStep*> last;
    for (PlannedFunction& function : plan.functions)
      if (function.segment == segment && is_backward(function.kind))
        for (PlannedStep& step : function.steps)
          for (const PlannedOperand& operand : step.operands)
            if (operand.value != none && operand.address.region == Region::slot) last[operand.value] = &step;
    for (const auto& [value, step] : last) step->dead_after.push_back(plan.allocation(value));
  }
}

namespace {

// ------------------------------------------------------------------- transfers

std::int32_t add_queue(const Work& work, std::string name, std::int64_t peer, Plan& plan) {
  plan.queues.push_back({std::move(name), false, work.axis, 0, peer, 0});
  return narrow<std::int32_t>(plan.queues.size()) - 1;
}

class Transfers {
 public:
  Transfers(const Program& program, const Work& work, Plan& plan)
      : program_(program), work_(work), plan_(plan), spans_(carried_spans(program)) {}

  void of_chunk(const ChunkWork& work, Chunk& chunk) {
    if (chunk.stub >= 0) {
      chunk.receive = add(chunk.stub, FunctionKind::receive, work.stage - 1, work.from,
                          carried(work, &CarriedSpan::arrives, &CarriedValue::value));
      chunk.send_gradient = add(chunk.stub, FunctionKind::send_gradient, work.stage - 1, work.from,
                                carried(work, &CarriedSpan::gradient_leaves, &CarriedValue::gradient));
    }
    if (work.to >= 0 && work.to != work_.coordinate) {
      chunk.send = add(chunk.last - 1, FunctionKind::send, work.stage, work.to,
                       carried(work, &CarriedSpan::leaves, &CarriedValue::value));
      chunk.receive_gradient = add(chunk.last - 1, FunctionKind::receive_gradient, work.stage, work.to,
                                   carried(work, &CarriedSpan::gradient_arrives, &CarriedValue::gradient));
    }
  }

 private:
  std::vector<Id> carried(const ChunkWork& chunk,
                          bool (CarriedSpan::*goes)(const Work&, const ChunkWork&) const,
                          Id CarriedValue::*what) const {
    std::vector<Id> values;
    for (const CarriedSpan& span : spans_)
      if (span.of.*what != none && (span.*goes)(work_, chunk)) values.push_back(span.of.*what);
    return values;
  }

  // Adds the transfer of the output of stage `stage`, or of its gradient, and of what is carried beside it;
  // returns -1 if there is none.
  std::int32_t add(std::int32_t instance, FunctionKind kind, std::int32_t stage, std::int64_t peer,
                   const std::vector<Id>& beside) {
    const Id segment = plan_.instances[instance].segment;
    const bool gradient = kind == FunctionKind::send_gradient || kind == FunctionKind::receive_gradient;
    const Id value =
        gradient ? program_.segment(segment).outgoing_gradient : program_.segment(segment).outgoing;
    if (value == none) return -1;
    PlannedFunction function;
    function.segment = segment;
    function.kind = kind;
    function.steps.push_back(step_of(value, kind, peer));
    for (const Id also : beside) function.steps.push_back(step_of(also, kind, peer));
    const std::string queue =
        detail::concat(program_.mesh().name(work_.axis), gradient ? ".backward." : ".forward.", stage);
    const auto steps = narrow<std::int32_t>(function.steps.size());
    function.pieces.push_back({0, steps, add_queue(work_, queue, peer, plan_)});
    plan_.functions.push_back(std::move(function));
    return narrow<std::int32_t>(plan_.functions.size()) - 1;
  }

  PlannedStep step_of(Id value, FunctionKind kind, std::int64_t peer) const {
    PlannedStep step;
    step.exchange = exchange_of(value, kind, peer);
    step.operands.push_back({value, plan_.allocation(value)});
    return step;
  }

  PlannedExchange exchange_of(Id value, FunctionKind kind, std::int64_t peer) const {
    const bool sends = kind == FunctionKind::send || kind == FunctionKind::send_gradient;
    PlannedExchange exchange;
    exchange.kind = sends ? CommKind::send : CommKind::recv;
    exchange.dtype = program_.value(value).dtype;
    exchange.count = program_.local_elements(value);
    exchange.peer = peer < work_.coordinate ? 0 : 1;
    (sends ? exchange.in : exchange.out) = plan_.allocation(value);
    return exchange;
  }

  const Program& program_;
  const Work& work_;
  Plan& plan_;
  const std::vector<CarriedSpan> spans_;
};

}  // namespace

void add_tie_queue(const Program& program, const Work& work, Plan& plan) {
  if (work.tied_to >= 0) add_queue(work, program.mesh().name(work.axis) + ".tie", work.tied_to, plan);
}

void plan_transfers(const Program& program, const Work& work, Plan& plan) {
  Transfers transfers(program, work, plan);
  for (std::size_t chunk = 0; chunk < plan.chunks.size(); ++chunk)
    transfers.of_chunk(work.chunks[chunk], plan.chunks[chunk]);
}

}  // namespace prun
