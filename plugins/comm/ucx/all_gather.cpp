// Plans all-gather. When it is small, every member sends its part to every other; when it is large, they form
// a ring. Either way a member of n with B bytes sends (n - 1) B.
#include "ring.hpp"

namespace prun::ucx {
namespace {

Plan exchange_parts(const Shape& shape) {
  PlanWriter plan(shape.size);
  for (std::int32_t k = 1; k < shape.size; ++k)
    plan.send(shape.wrap(shape.rank + k), {Buffer::in, 0}, shape.bytes());
  for (std::int32_t k = 1; k < shape.size; ++k) {
    const std::int32_t from = shape.wrap(shape.rank - k);
    plan.receive(from, {Buffer::out, from * shape.bytes()}, shape.bytes());
  }
  if (!shape.in_place) plan.copy({Buffer::in, 0}, {Buffer::out, shape.rank * shape.bytes()}, shape.bytes());
  return plan.finish();
}

Plan pass_round(const Shape& shape) {
  PlanWriter plan(shape.size);
  // In a group of two nothing is passed on, and so nothing is cut.
  const std::int64_t longest = forwarded_chunks * shape.tuning.chunk_bytes;
  const std::int64_t chunks = shape.size == 2 ? 1 : parts_for(shape.bytes(), longest);
  const std::int64_t stages = shape.size - 1;
  std::vector<StepId> ready(static_cast<std::size_t>(chunks), no_step);
  Window sending(messages_under_way), receiving(messages_under_way);
  const auto visit = [&](std::int64_t stage, std::int64_t chunk) {
    const Part part = part_of(shape.count, shape.element, chunks, chunk);
    const Place own{Buffer::in, part.offset};
    const auto gathered = [&](std::int64_t member) {
      return Place{Buffer::out, shape.wrap(member) * shape.bytes() + part.offset};
    };
    StepId& last = ready[static_cast<std::size_t>(chunk)];
    sending.add(plan.send(shape.right(), stage == 0 ? own : gathered(shape.rank - stage), part.bytes,
                          {last, sending.oldest()}));
    last = plan.receive(shape.left(), gathered(shape.rank - stage - 1), part.bytes, {receiving.oldest()});
    receiving.add(last);
  };
  each_in_pipeline(stages, chunks, visit);
  // The other members read from here meanwhile.
  if (!shape.in_place) plan.copy({Buffer::in, 0}, {Buffer::out, shape.rank * shape.bytes()}, shape.bytes());
  return plan.finish();
}

}  // namespace

Plan plan_all_gather(const Shape& shape) {
  const bool small = shape.bytes() * (shape.size - 1) <= shape.tuning.small_bytes;
  return shape.size == 1 || small ? exchange_parts(shape) : pass_round(shape);
}

}  // namespace prun::ucx
