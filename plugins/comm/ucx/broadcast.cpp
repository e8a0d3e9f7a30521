// Plans broadcast. A small one is a binomial tree; a large one is a chain from the root through all members,
// chunk by chunk. All members together send (n - 1) B; in the chain, each sends B but the last.
#include "ring.hpp"

namespace prun::ucx {
namespace {

Plan along_tree(const Shape& shape) {
  PlanWriter plan(shape.size);
  const Place out{Buffer::out, 0};
  const std::int32_t number = shape.wrap(shape.rank - shape.root);
  StepId arrived = no_step;
  std::int32_t mask = 1;
  while (mask < shape.size && (number & mask) == 0) mask *= 2;
  if (number != 0) arrived = plan.receive(shape.wrap(shape.rank - mask), out, shape.bytes());
  for (mask /= 2; mask > 0; mask /= 2)
    if (number + mask < shape.size) plan.send(shape.wrap(shape.rank + mask), out, shape.bytes(), {arrived});
  return plan.finish();
}

Plan along_chain(const Shape& shape) {
  PlanWriter plan(shape.size);
  const std::int64_t chunks = parts_for(shape.bytes(), forwarded_chunks * shape.tuning.chunk_bytes);
  const bool first = shape.rank == shape.root, last = shape.right() == shape.root;
  Window sending(messages_under_way), receiving(messages_under_way);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Part part = part_of(shape.count, shape.element, chunks, chunk);
    const Place place{Buffer::out, part.offset};
    StepId arrived = no_step;
    if (!first) receiving.add(arrived = plan.receive(shape.left(), place, part.bytes, {receiving.oldest()}));
    if (!last) sending.add(plan.send(shape.right(), place, part.bytes, {arrived, sending.oldest()}));
  }
  return plan.finish();
}

}  // namespace

Plan plan_broadcast(const Shape& shape) {
  return shape.bytes() <= shape.tuning.small_bytes ? along_tree(shape) : along_chain(shape);
}

}  // namespace prun::ucx
