#include "algorithms.hpp"

#include <bit>

namespace prun::ucx {
namespace {

// ------------------------------------------------------------------- ring
// Holds what the ring algorithms share. The data is cut in as many blocks as there are members, each block in
// chunks. At stage s a member sends one block to its right and gets another from its left.
// Implements cutting into blocks and chunks, and scratch slots.

// Chunk c of stage s comes at time c + s, so that all stages of the pipeline are at work at once. Calls
// visit(stage, chunk) in the order in which all members write their steps down.
template <class Visit>
void each_in_pipeline(std::int64_t stages, std::int64_t chunks, Visit&& visit) {
  for (std::int64_t time = 0; time < chunks + stages - 1; ++time)
    for (std::int64_t stage = std::min(stages - 1, time); stage >= 0 && time - stage < chunks; --stage)
      visit(stage, time - stage);
}

// Holds the blocks of an all-reduce: member r sends block r first, and at each stage the one before.
class Ring {
 public:
  explicit Ring(const Shape& shape);

  std::int64_t chunks() const { return chunks_; }
  std::int64_t chunk_bytes() const { return chunk_bytes_; }  // the size of the largest chunk
  std::int32_t sent_block(std::int64_t stage) const { return shape_.wrap(shape_.rank - stage); }
  std::int32_t received_block(std::int64_t stage) const { return sent_block(stage + 1); }
  // Returns the chunk's place within all blocks.
  Part chunk(std::int32_t block, std::int64_t chunk) const;

 private:
  Part block(std::int32_t block) const { return part_of(shape_.count, shape_.element, shape_.size, block); }

  const Shape& shape_;
  std::int64_t chunks_ = 1;
  std::int64_t chunk_bytes_ = 0;
};

// Keeps for each stage and chunk the number of the step that others wait for.
class StepGrid {
 public:
  StepGrid(std::int64_t stages, std::int64_t chunks)
      : chunks_(chunks), steps_(static_cast<std::size_t>(stages * chunks), no_step) {}
  StepId& at(std::int64_t stage, std::int64_t chunk) {
    return steps_[static_cast<std::size_t>(stage * chunks_ + chunk)];
  }

 private:
  std::int64_t chunks_;
  std::vector<StepId> steps_;
};

// Holds places in scratch that are reused one after the other; each remembers the step after which it is free
// again. There are never more places than are taken in all.
class Slots {
 public:
  Slots(PlanWriter& plan, std::size_t count, std::int64_t takes, std::int64_t bytes);
  struct Slot {
    Place place;
    StepId free_after = no_step;
  };
  std::size_t take() { return next_++ % slots_.size(); }
  Slot& operator[](std::size_t slot) { return slots_[slot]; }

 private:
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
};

Ring::Ring(const Shape& shape) : shape_(shape) {
  std::int64_t largest = 0;
  for (std::int32_t i = 0; i < shape.size; ++i) largest = std::max(largest, block(i).bytes);
  chunks_ = parts_for(largest, shape.tuning.chunk_bytes);
  for (std::int32_t i = 0; i < shape.size; ++i)
    for (std::int64_t c = 0; c < chunks_; ++c) chunk_bytes_ = std::max(chunk_bytes_, chunk(i, c).bytes);
}

Part Ring::chunk(std::int32_t block_number, std::int64_t number) const {
  const Part whole = block(block_number);
  const Part inner = part_of(whole.bytes / shape_.element, shape_.element, chunks_, number);
  return {whole.offset + inner.offset, inner.bytes};
}

Slots::Slots(PlanWriter& plan, std::size_t count, std::int64_t takes, std::int64_t bytes)
    : slots_(std::min(count, static_cast<std::size_t>(takes))) {
  for (Slot& slot : slots_) slot.place = plan.scratch(bytes);
}

// ------------------------------------------------------------------- all gather
// Plans all-gather. When it is small, every member sends its part to every other; when it is large, they form
// a ring. Either way a member of n with B bytes sends (n - 1) B.

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

namespace {

// ------------------------------------------------------------------- all reduce
// Plans all-reduce. When it is small, every member sends everything to every other, or large groups use
// recursive doubling. When it is large, a ring reduces and then one gathers, chunk by chunk at the same time;
// in a group of two that is the exchange of halves. Bytes sent by each member of n, B bytes each:
//   exchange            (n - 1) B
//   recursive doubling  log2(n) B where n is a power of two; see `double_recursively` for the others
//   ring                2 (n - 1) / n B

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
      // The bytes that lay here, a partial sum or in place the input, must have been sent.
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

namespace {

// ------------------------------------------------------------------- broadcast
// Plans broadcast. A small one is a binomial tree; a large one is a chain from the root through all members,
// chunk by chunk. All members together send (n - 1) B; in the chain, each sends B but the last.

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

// ------------------------------------------------------------------- direct
// Plans the operations that need no real algorithm: all-to-all, send, recv, and a barrier by dissemination.
// All-to-all sends (n - 1) B with B bytes for each member; send sends B; a barrier sends nothing but empty
// messages.

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

namespace {

// ------------------------------------------------------------------- reduce scatter
// Plans reduce-scatter. When it is small, every member sends each other its block, which adds them in the
// order of the ranks. When it is large, they form a ring; a block's sum starts at the member after its owner.
// Either way a member of n, with B bytes of result, sends (n - 1) B.

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
