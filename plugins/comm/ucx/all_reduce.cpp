// Plans all-reduce. When it is small, every member sends everything to every other, or large groups use
// recursive doubling. When it is large, a ring reduces and then one gathers, chunk by chunk at the same time;
// in a group of two that is the exchange of halves. Bytes sent by each member of n, B bytes each:
//   exchange            (n - 1) B
//   recursive doubling  log2(n) B where n is a power of two; see `double_recursively` for the others
//   ring                2 (n - 1) / n B
#include <bit>

#include "ring.hpp"

namespace prun::ucx {
namespace {

constexpr std::int32_t largest_exchange = 4;  // counts members

// Every member adds in the order of the ranks.
Plan exchange_all(const Shape& shape) {
  PlanWriter plan(shape.size);
  const std::int64_t bytes = shape.bytes();
  const Place in{Buffer::in, 0}, out{Buffer::out, 0};
  std::vector<StepId> sent;
  for (std::int32_t k = 1; k < shape.size; ++k)
    sent.push_back(plan.send(shape.wrap(shape.rank + k), in, bytes));
  std::vector<Place> places(static_cast<std::size_t>(shape.size), in);
  std::vector<StepId> arrived(static_cast<std::size_t>(shape.size), no_step);
  for (std::int32_t k = 1; k < shape.size; ++k) {
    const auto from = static_cast<std::size_t>(shape.wrap(shape.rank - k));
    places[from] = plan.scratch(bytes);
    arrived[from] = plan.receive(static_cast<std::int32_t>(from), places[from], bytes);
  }
  const Place sum = shape.size > 2 ? plan.scratch(bytes) : out;
  StepId added = arrived[0];
  // `out` may be memory that is still being sent.
  const StepId all_sent = plan.join(sent);
  for (std::size_t i = 1; i < places.size(); ++i) {
    const bool last = i + 1 == places.size();
    added = plan.combine(i == 1 ? places[0] : sum, places[i], last ? out : sum, bytes,
                         {added, arrived[i], last ? all_sent : no_step});
  }
  return plan.finish();
}

// The first 2 * extra members fold into half as many, so that a power of two is left; at each of its log2
// rounds a member and its partner send each other all they have. Both add the lower one's sum to the other's.
class Doubling {
 public:
  explicit Doubling(const Shape& shape)
      : shape_(shape),
        plan_(shape.size),
        power_(static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(shape.size)))),
        extra_(shape.size - power_),
        rounds_(std::countr_zero(static_cast<std::uint32_t>(power_))) {}

  Plan write() {
    const bool folds = shape_.rank < 2 * extra_;
    if (folds && shape_.rank % 2 == 0) return stand_aside();
    if (folds) meet(shape_.rank - 1, false);
    for (std::int32_t round = 0; round < rounds_; ++round) {
      const std::int32_t partner = number() ^ (1 << round);
      meet(member(partner), true);
    }
    // `out` may be memory that is still being sent.
    const StepId done = plan_.copy(mine_, out_, shape_.bytes(), {ready_, input_sent_});
    if (folds) plan_.send(shape_.rank - 1, out_, shape_.bytes(), {done});
    return plan_.finish();
  }

 private:
  std::int32_t number() const { return shape_.rank < 2 * extra_ ? shape_.rank / 2 : shape_.rank - extra_; }
  std::int32_t member(std::int32_t number) const {
    return number < extra_ ? 2 * number + 1 : number + extra_;
  }

  Plan stand_aside() {
    const StepId sent = plan_.send(shape_.rank + 1, {Buffer::in, 0}, shape_.bytes());
    plan_.receive(shape_.rank + 1, out_, shape_.bytes(), {sent});
    return plan_.finish();
  }

  void meet(std::int32_t peer, bool both) {
    const std::int64_t bytes = shape_.bytes();
    if (both) {
      const StepId sent = plan_.send(peer, mine_, bytes, {ready_});
      if (mine_.buffer == Buffer::in) input_sent_ = sent;
    }
    const Place theirs = plan_.scratch(bytes), sum = plan_.scratch(bytes);
    const StepId arrived = plan_.receive(peer, theirs, bytes);
    const bool lower = shape_.rank < peer;
    ready_ = plan_.combine(lower ? mine_ : theirs, lower ? theirs : mine_, sum, bytes, {ready_, arrived});
    mine_ = sum;
  }

  const Shape& shape_;
  PlanWriter plan_;
  std::int32_t power_, extra_, rounds_;
  Place mine_{Buffer::in, 0};
  Place out_{Buffer::out, 0};
  StepId ready_ = no_step, input_sent_ = no_step;
};

// A block's sum starts at the member after its owner and goes round.
Plan reduce_and_gather(const Shape& shape) {
  PlanWriter plan(shape.size);
  const Ring ring(shape);
  const std::int64_t reducing = shape.size - 1, stages = 2 * reducing;
  Slots slots(plan, messages_under_way, reducing * ring.chunks(), ring.chunk_bytes());
  refuse_more_steps(static_cast<std::size_t>(shape.size), stages * ring.chunks());
  StepGrid sent(stages, ring.chunks());
  std::vector<StepId> ready(static_cast<std::size_t>(ring.chunks()), no_step);
  Window sending(messages_under_way), gathering(messages_under_way);

  each_in_pipeline(stages, ring.chunks(), [&](std::int64_t stage, std::int64_t chunk) {
    const Part to_send = ring.chunk(ring.sent_block(stage), chunk);
    const Part part = ring.chunk(ring.received_block(stage), chunk);
    const Place in{Buffer::in, part.offset}, out{Buffer::out, part.offset};
    StepId& last = ready[static_cast<std::size_t>(chunk)];
    StepId& send = sent.at(stage, chunk);
    send = plan.send(shape.right(), {stage == 0 ? Buffer::in : Buffer::out, to_send.offset}, to_send.bytes,
                     {last, sending.oldest()});
    sending.add(send);
    if (stage < reducing) {
      Slots::Slot& slot = slots[slots.take()];
      const StepId arrived = plan.receive(shape.left(), slot.place, part.bytes, {slot.free_after});
      last = slot.free_after = plan.combine(slot.place, in, out, part.bytes, {arrived});
    } else {
      // What lay here, a partial sum or in place the input, must have been sent.
      last =
          plan.receive(shape.left(), out, part.bytes, {gathering.oldest(), sent.at(stage - reducing, chunk)});
      gathering.add(last);
    }
  });
  return plan.finish();
}

}  // namespace

Plan plan_all_reduce(const Shape& shape) {
  if (shape.size == 1) {
    PlanWriter plan(1);
    if (!shape.in_place) plan.copy({Buffer::in, 0}, {Buffer::out, 0}, shape.bytes());
    return plan.finish();
  }
  if (shape.bytes() > shape.tuning.small_bytes) return reduce_and_gather(shape);
  return shape.size <= largest_exchange ? exchange_all(shape) : Doubling(shape).write();
}

}  // namespace prun::ucx
