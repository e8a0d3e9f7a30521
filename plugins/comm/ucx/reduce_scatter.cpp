// Plans reduce-scatter. When it is small, every member sends each other its block, which adds them in the
// order of the ranks. When it is large, they form a ring; a block's sum starts at the member after its owner.
// Either way a member of n, with B bytes of result, sends (n - 1) B.
#include "ring.hpp"

namespace prun::ucx {
namespace {

Plan exchange_summands(const Shape& shape) {
  PlanWriter plan(shape.size);
  const std::int64_t bytes = shape.bytes();
  for (std::int32_t k = 1; k < shape.size; ++k) {
    const std::int32_t to = shape.wrap(shape.rank + k);
    plan.send(to, {Buffer::in, to * bytes}, bytes);
  }
  const Place out{Buffer::out, 0};
  std::vector<Place> places(static_cast<std::size_t>(shape.size), {Buffer::in, shape.rank * bytes});
  std::vector<StepId> arrived(static_cast<std::size_t>(shape.size), no_step);
  for (std::int32_t k = 1; k < shape.size; ++k) {
    const auto from = static_cast<std::size_t>(shape.wrap(shape.rank - k));
    places[from] = plan.scratch(bytes);
    arrived[from] = plan.receive(static_cast<std::int32_t>(from), places[from], bytes);
  }
  if (shape.size == 1 && !shape.in_place) plan.copy(places[0], out, bytes);
  // The sum is not in `out`: in place, that holds this member's own part until it is added.
  const Place sum = shape.size > 2 ? plan.scratch(bytes) : out;
  StepId added = arrived[0];
  for (std::size_t i = 1; i < places.size(); ++i)
    added = plan.combine(i == 1 ? places[0] : sum, places[i], i + 1 == places.size() ? out : sum, bytes,
                         {added, arrived[i]});
  return plan.finish();
}

Plan reduce_round(const Shape& shape) {
  PlanWriter plan(shape.size);
  const std::int64_t chunks = parts_for(shape.bytes(), shape.tuning.chunk_bytes);
  const std::int64_t stages = shape.size - 1;
  std::int64_t largest = 0;
  for (std::int64_t c = 0; c < chunks; ++c)
    largest = std::max(largest, part_of(shape.count, shape.element, chunks, c).bytes);
  // A slot is free again when the next stage has sent its sum: that is written down within 2 * stages.
  Slots slots(plan, std::max(messages_under_way, static_cast<std::size_t>(2 * stages)), stages * chunks,
              largest);
  std::vector<std::size_t> slot_of(static_cast<std::size_t>(chunks), 0);
  std::vector<StepId> ready(static_cast<std::size_t>(chunks), no_step);
  Window sending(messages_under_way);

  const auto visit = [&](std::int64_t stage, std::int64_t chunk) {
    const Part part = part_of(shape.count, shape.element, chunks, chunk);
    const auto own = [&](std::int64_t member) {
      return Place{Buffer::in, shape.wrap(member) * shape.bytes() + part.offset};
    };
    StepId& last = ready[static_cast<std::size_t>(chunk)];
    std::size_t& slot = slot_of[static_cast<std::size_t>(chunk)];
    const Place partial = stage == 0 ? own(shape.rank - 1) : slots[slot].place;
    const StepId sent = plan.send(shape.right(), partial, part.bytes, {last, sending.oldest()});
    sending.add(sent);
    if (stage > 0) slots[slot].free_after = sent;

    slot = slots.take();
    const Place arriving = slots[slot].place;
    const StepId arrived = plan.receive(shape.left(), arriving, part.bytes, {slots[slot].free_after});
    const Place sum = stage + 1 == stages ? Place{Buffer::out, part.offset} : arriving;
    last = plan.combine(arriving, own(shape.rank - stage - 2), sum, part.bytes, {arrived});
    slots[slot].free_after = last;
  };
  each_in_pipeline(stages, chunks, visit);
  return plan.finish();
}

}  // namespace

Plan plan_reduce_scatter(const Shape& shape) {
  const bool small = shape.bytes() * (shape.size - 1) <= shape.tuning.small_bytes;
  return shape.size == 1 || small ? exchange_summands(shape) : reduce_round(shape);
}

}  // namespace prun::ucx
