// Plans the operations that need no real algorithm: all-to-all, send, recv, and a barrier by dissemination.
// All-to-all sends (n - 1) B with B bytes for each member; send sends B; a barrier sends nothing but empty
// messages.
#include "ring.hpp"

namespace prun::ucx {

Plan plan_all_to_all(const Shape& shape) {
  PlanWriter plan(shape.size);
  const std::int64_t bytes = shape.bytes();
  Window sending(messages_under_way), receiving(messages_under_way);
  for (std::int32_t k = 1; k < shape.size; ++k) {
    const std::int32_t to = shape.wrap(shape.rank + k), from = shape.wrap(shape.rank - k);
    sending.add(plan.send(to, {Buffer::in, to * bytes}, bytes, {sending.oldest()}));
    receiving.add(plan.receive(from, {Buffer::out, from * bytes}, bytes, {receiving.oldest()}));
  }
  plan.copy({Buffer::in, shape.rank * bytes}, {Buffer::out, shape.rank * bytes}, bytes);
  return plan.finish();
}

Plan plan_send(const Shape& shape) {
  PlanWriter plan(shape.size);
  plan.send(shape.root, {Buffer::in, 0}, shape.bytes());
  return plan.finish();
}

Plan plan_recv(const Shape& shape) {
  PlanWriter plan(shape.size);
  plan.receive(shape.root, {Buffer::out, 0}, shape.bytes());
  return plan.finish();
}

Plan plan_barrier(const Shape& shape) {
  PlanWriter plan(shape.size);
  StepId sent = no_step, arrived = no_step;
  for (std::int32_t distance = 1; distance < shape.size; distance *= 2) {
    const StepId earlier_sent = sent, earlier_arrived = arrived;
    sent = plan.notify(shape.wrap(shape.rank + distance), {earlier_sent, earlier_arrived});
    arrived = plan.await(shape.wrap(shape.rank - distance), {earlier_arrived});
  }
  return plan.finish();
}

}  // namespace prun::ucx
