#include "plan/memory/place_regions.hpp"

#include <algorithm>

#include "base/saturated.hpp"

namespace prun {
namespace {

// More than there are addresses for stays so, and is refused where it is to have a place.
std::int64_t times(std::int64_t count, std::int64_t bytes) {
  return saturated_product(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(bytes));
}

class Regions {
 public:
  Regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes, const Layout* beneath,
          Plan& plan)
      : program_(program), work_(work), sizes_(sizes), beneath_(beneath), plan_(plan) {}

  // What stays between steps lies first.
  void place(const InTurn& in_turn) {
    for (range_ = 0; range_ < static_cast<std::int32_t>(plan_.layout.ranges.size()); ++range_) {
      here().begin = end_ = range_ * range_distance;
      const bool shared = beneath_ && static_cast<std::size_t>(range_) < beneath_->ranges.size();
      if (shared) share(beneath_->ranges[range_]);
      for (Region region : {Region::parameter, Region::state, Region::gradient})
        if (!shared) place_per_instance(region);
      place_values_of_step();
      here().kept = end_ - here().begin;
      if (range_ == 0 && boundaries_pass_on())
        place_in_turn(Region::boundary, most_of(Region::boundary), 3, slots_at_once());
      else
        place_per_slot(Region::boundary);
      place_per_slot(Region::slot);
      if (range_ == 0) {
        place_boundary_gradients();
        place_saved_in_turn();
        place_turns(Region::gathered, in_turn.gathered);
      }
      place_turns(Region::bucket, take_bucket_turns(in_turn.reduced, scratch_by_instance(Region::bucket)));
      place_turns(Region::update,
                  take_update_turns(plan_, scratch_by_instance(Region::update), in_turn.far_ahead));
      place_inputs();
      place_scratch();
      here().workspace = take(Region::workspace, most_workspace());
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

  // What lasts where it is, and nothing in what stays beside it.
  void share(const Layout::Range& under) {
    for (Region region : {Region::parameter, Region::state, Region::gradient}) {
      placed(region) = under.instances[region];
      take(region, under.memory.bytes[region]);
    }
    take(Region::others, here().begin + under.kept - end_);
  }

  Numbered<Layout::Strided>& placed(Region region) { return here().instances[region]; }

  std::vector<std::int64_t> bytes_of(Region region) const {
    return bytes_by_instance(plan_, sizes_, region, range_);
  }

  void place_per_instance(Region region) {
    for (const std::int64_t bytes : bytes_of(region)) placed(region).push_back({take(region, bytes), 0});
  }

  void place_per_slot(Region region) {
    const std::vector<std::int64_t> bytes = bytes_of(region);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      placed(region).push_back({take(region, times(slots_of(i), bytes[i])), bytes[i]});
  }

  void place_turns(Region region, const Turns& turns) {
    const std::int64_t base = take(region, turns.offsets.bytes);
    for (const std::int64_t offset : turns.offsets.of) placed(region).push_back({base + offset, 0});
  }

  // Each lane has its own, where there are several.
  void place_scratch() {
    const std::int64_t each = align(most_scratch(), plan_.layout.alignment_in(here()));
    here().scratch = {take(Region::scratch, plan_.lanes * each), plan_.lanes > 1 ? each : 0};
  }

  // From where scratch begins, and beyond it as far as they need; behind that of several lanes, which may all
  // be in use at any time.
  void place_unreduced(const Turns& turns) {
    const std::int64_t base = plan_.lanes > 1 ? end_ : here().scratch.base;
    take(Region::unreduced, std::max<std::int64_t>(0, base + turns.offsets.bytes - end_));
    for (const std::int64_t offset : turns.offsets.of)
      placed(Region::unreduced).push_back({base + offset, 0});
  }

  // Buffers for all instances, each with so many slots.
  void place_in_turn(Region region, std::int64_t bytes, std::size_t buffers, std::int64_t slots) {
    const auto size = times(slots, bytes),
               base = take(region, times(static_cast<std::int64_t>(buffers), size));
    for (std::size_t i = 0; i < plan_.instances.size(); ++i)
      placed(region).push_back({base + static_cast<std::int64_t>(i % buffers) * size, slots > 1 ? bytes : 0});
  }

  // Microbatches that one instance does before the next one begins.
  std::int64_t slots_at_once() const {
    if (plan_.lanes > 1) return plan_.lanes;
    return work_.axis == no_axis && work_.interleaves() ? plan_.microbatches : 1;
  }

  std::int64_t most_of(Region region) const {
    const std::vector<std::int64_t> bytes = bytes_of(region);
    return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  }

  // Where backward reads what has returned, nobody needs what an instance hands on but the next one's
  // forward, and whoever takes it away: while that goes on, two more instances can compute.
  bool boundaries_pass_on() const {
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

  // What leaves and what returns have the same memory.
  void place_saved_in_turn() {
    const std::int64_t leaving = most_of(Region::leaving), returned = most_of(Region::returned),
                       bytes = std::max(leaving, returned);
    const std::int64_t base = take(Region::leaving, 2 * bytes);
    for (Region region : {Region::leaving, Region::returned})
      placed(region).assign(plan_.instances.size(), Layout::Strided{base, bytes});
  }

  const Chunk* chunk_of(std::size_t instance) const {
    const auto at = static_cast<std::int32_t>(instance);
    for (const Chunk& chunk : plan_.chunks)
      if (at == chunk.stub || (chunk.first <= at && at < chunk.last)) return &chunk;
    return nullptr;
  }

  std::int64_t slots_of(std::size_t instance) const {
    const Chunk* chunk = chunk_of(instance);
    return chunk ? chunk->slots + plan_.instances[instance].receive_stub : 1;
  }

  // Whether the gradient of what an instance hands on must outlast the backward pass that it is made in: it
  // is for or from another stage, or weight gradients are made of it later.
  bool boundary_gradient_lasts(std::size_t instance) const {
    const Chunk* chunk = chunk_of(instance);
    return chunk && work_.axis != no_axis &&
           (work_.split || plan_.instances[instance].receive_stub ||
            static_cast<std::int32_t>(instance) + 1 == chunk->last);
  }

  // Backward reads the gradient of one boundary and writes that of the one before, of all microbatches where
  // they pass an instance one after the other.
  void place_boundary_gradients() {
    const std::vector<std::int64_t> bytes = bytes_of(Region::boundary_gradient);
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (!boundary_gradient_lasts(i)) largest = std::max(largest, bytes[i]);
    place_in_turn(Region::boundary_gradient, largest, 2, slots_at_once());
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (boundary_gradient_lasts(i))
        placed(Region::boundary_gradient)[i] = {take(Region::boundary_gradient, times(slots_of(i), bytes[i])),
                                                bytes[i]};
  }

  std::int64_t here(const std::vector<std::int64_t>& by_range) const {
    const auto range = static_cast<std::size_t>(range_);
    return range < by_range.size() ? by_range[range] : 0;
  }

  // A function has so many bytes at once that nobody reads after it.
  std::int64_t scratch_of(const PlannedFunction& function) const { return here(function.scratch_bytes); }

  std::int64_t most_scratch() const {
    std::int64_t most = 0;
    for (const PlannedFunction& function : plan_.functions)
      if (function.scratch == Region::scratch) most = std::max(most, scratch_of(function));
    return most;
  }

  std::int64_t most_workspace() const {
    std::int64_t most = 0;
    for (const PlannedFunction& function : plan_.functions)
      most = std::max(most, here(function.workspace_bytes));
    return most;
  }

  // Of each instance, what the function has there beside which others run.
  std::vector<std::int64_t> scratch_by_instance(Region region) const {
    std::vector<std::int64_t> bytes(plan_.instances.size());
    for (std::size_t i = 0; i < bytes.size(); ++i)
      for (const PlannedFunction& function : plan_.functions)
        if (function.scratch == region && function.segment == plan_.instances[i].segment &&
            !plan_.instances[i].receive_stub)
          bytes[i] = scratch_of(function);
    return bytes;
  }

  // Here of what belongs to no instance of the chain.
  std::int64_t step_bytes(Region region) const { return sizes_[program_.step_segment()].of(region, range_); }

  void place_values_of_step() {
    Layout& layout = plan_.layout;
    here().runtime = take(Region::runtime, step_bytes(Region::runtime));
    if (range_ != 1) return;
    layout.batch_side = times(plan_.microbatches, step_bytes(Region::batch));
    layout.batch = {take(Region::batch, times(2, layout.batch_side)), step_bytes(Region::batch)};
    layout.scalars = {take(Region::scalars, 2 * step_bytes(Region::scalars)), step_bytes(Region::scalars)};
  }

  void place_inputs() {
    const std::int64_t bytes = step_bytes(Region::input);
    if (range_ == 0) plan_.layout.input = {take(Region::input, times(plan_.input_slots, bytes)), bytes};
  }

  const Program& program_;
  const Work& work_;
  std::span<const RegionBytes> sizes_;
  const Layout* const beneath_;
  Plan& plan_;
  std::int32_t range_ = 0;
  std::int64_t end_ = 0;  // of what has a place
};

}  // namespace

void place_regions(const Program& program, const Work& work, std::span<const RegionBytes> sizes,
                   const InTurn& in_turn, const Layout* beneath, Plan& plan) {
  Regions(program, work, sizes, beneath, plan).place(in_turn);
}

}  // namespace prun
