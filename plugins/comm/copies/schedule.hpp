// Makes operations into messages between members, and into sums of what arrived.
//
// A member has lanes, each of which does one thing after the other: pushing lanes, one for each other member
// as far as they go (Layout::lane_to), send messages, and a taking lane takes what arrives. Pushes to
// different members so run at once, and a late receiver holds up what is meant for it.
//
// Lanes never wait for each other in a circle. Give each thing that a lane does its place: the list, the
// operation in it, the piece of the operation, and then whether it grants (1), pushes (2) or takes (3), in
// the order of these; grants of a list come before its first operation. Members list messages in one order,
// so both ends of a message give it one place. Whatever a lane waits for has an earlier place: what it was
// given before, since every lane is given things in the order of their places, however members share lanes;
// for a push, that a message of an earlier piece was taken out of its slot, or a grant of its list; for a
// taking, the push of the same piece; for a fork or a join, what was given before. So of all that is not yet
// done, the earliest waits for nothing. A thread that holds because a lane is full has given everything
// earlier already, so the earliest is always given.
//
// `Lanes` has
//   fork()                            has what is pushed from now on wait for all that the taking lane was
//                                     given
//   join()                            has the taking lane wait until all is read that was to be pushed
//   push(to, from, bytes)             sends a message of at most slot_bytes() bytes
//   await(from) -> const std::byte*   waits for the next message, and says where it lies
//   release(from)                     gives its slot back
//   grant(from)                       lets a member write one message right where it belongs
//   place(to, place, from, bytes)     writes such a message, of any length, once it may
//   land(from)                        waits for such a message
//   copy(to, from, bytes)             copies, in the taking lane
//   fold(Summands)                    adds up, or takes the maximum, in the taking lane
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "layout.hpp"

namespace prun::copies {

// Holds what members have of one range of elements, in the order of the members, and where the sum goes.
struct Summands {
  std::array<const std::byte*, most_members> from{};
  std::int32_t members = 0;
  std::byte* to = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
};

// Says where the members have the results of one operation, as this member reaches them: messages go
// there. Members agree on where they go; null pointers stand for messages that go to slots.
using Places = std::array<std::byte*, most_members>;

// Says what goes to a member, and what comes of one.
struct Source {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
};
struct Target {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

inline const std::byte* in_of(const CommOp& op, std::int64_t element = 0) {
  return static_cast<const std::byte*>(op.in) + element * size_of(op.dtype);
}
inline std::byte* out_of(const CommOp& op, std::int64_t element = 0) {
  return static_cast<std::byte*>(op.out) + element * size_of(op.dtype);
}
inline std::int64_t bytes_of(const CommOp& op) { return op.count * size_of(op.dtype); }

template <class Lanes>
class Schedule {
 public:
  Schedule(const Layout& layout, Lanes& lanes) : layout_(layout), lanes_(lanes) {}

  // `places` has an entry for each operation, or is empty.
  void run(std::span<const CommOp> ops, std::span<const Places> places = {}) {
    lanes_.fork();
    for (std::size_t i = 0; i < places.size(); ++i)
      if (has(places[i])) grant(ops[i]);
    for (std::size_t i = 0; i < ops.size(); ++i) run_one(ops[i], places.empty() ? Places{} : places[i]);
    lanes_.join();
  }

 private:
  std::int32_t rank() const { return layout_.rank(); }

  void run_one(const CommOp& op, const Places& places) {
    switch (op.kind) {
      case CommKind::all_reduce:
        return is_small(op, layout_) ? reduce_whole(op) : reduce_in_parts(op, places);
      case CommKind::all_gather: return gather(op, places);
      case CommKind::reduce_scatter:
        return reduce(op, op.in, out_of(op), [&](std::int32_t member) {
          return Range{member * op.count, op.count};
        });
      case CommKind::broadcast: return broadcast(op, places);
      case CommKind::all_to_all: return swap(op, places);
      case CommKind::send:
        return exchange(
            [&](std::int32_t to) {
              return to == op.peer ? Source{in_of(op), bytes_of(op)} : Source{};
            },
            [](std::int32_t) { return Target{}; });
      case CommKind::recv:
        return exchange([](std::int32_t) { return Source{}; },
                        [&](std::int32_t from) {
                          return from == op.peer ? Target{out_of(op), bytes_of(op)} : Target{};
                        });
      case CommKind::barrier: return meet();
    }
  }

  // Sends `give(member)` to each member and writes what comes of each to `get(member)`. Both ends of a
  // message know its length.
  template <class Give, class Get>
  void exchange(Give give, Get get) {
    std::int64_t longest = 0;
    for (std::int32_t k = 1; k < layout_.size(); ++k)
      longest = std::max({longest, give(layout_.next(k)).bytes, get(layout_.before(k)).bytes});
    for (std::int64_t at = 0; at < longest; at += layout_.slot_bytes()) {
      for (std::int32_t k = 1; k < layout_.size(); ++k) {
        const std::int32_t to = layout_.next(k);
        if (const Source source = give(to); at < source.bytes)
          lanes_.push(to, source.data + at, std::min(layout_.slot_bytes(), source.bytes - at));
      }
      for (std::int32_t k = 1; k < layout_.size(); ++k) {
        const std::int32_t from = layout_.before(k);
        if (const Target target = get(from); at < target.bytes)
          take(from, target.data + at, std::min(layout_.slot_bytes(), target.bytes - at));
      }
    }
  }

  // Lets the others write once this member's queue is there, for all operations of a list at once: they do
  // not touch each other's memory. The sums of an all_reduce come where this member sends from, if `in` is
  // `out`, and its owner has none before it was sent.
  void grant(const CommOp& op) {
    for (std::int32_t k = 1; k < layout_.size(); ++k)
      if (placed_bytes(op, layout_, layout_.before(k)) > 0) lanes_.grant(layout_.before(k));
  }

  // Does the same with results that the others reach; those of this member's messages begin `offset` bytes
  // behind the begin of each result.
  template <class Give, class Get>
  void exchange(const Places& places, std::int64_t offset, Give give, Get get) {
    if (!has(places)) return exchange(give, get);
    for (std::int32_t k = 1; k < layout_.size(); ++k) {
      const std::int32_t to = layout_.next(k);
      if (const Source source = give(to); source.bytes > 0)
        lanes_.place(to, places[static_cast<std::size_t>(to)] + offset, source.data, source.bytes);
    }
    for (std::int32_t k = 1; k < layout_.size(); ++k)
      if (get(layout_.before(k)).bytes > 0) lanes_.land(layout_.before(k));
  }
  bool has(const Places& places) const {
    return layout_.size() > 1 && places[static_cast<std::size_t>(layout_.next(1))] != nullptr;
  }

  void take(std::int32_t from, std::byte* to, std::int64_t length) {
    const std::byte* const slot = lanes_.await(from);
    lanes_.copy(to, slot, length);
    lanes_.release(from);
  }

  void keep_own(std::byte* to, const std::byte* from, std::int64_t length) {
    if (to != from && length > 0) lanes_.copy(to, from, length);
  }

  void gather(const CommOp& op, const Places& places) {
    keep_own(out_of(op, rank() * op.count), in_of(op), bytes_of(op));
    exchange(
        places, rank() * bytes_of(op),
        [&](std::int32_t) {
          return Source{in_of(op), bytes_of(op)};
        },
        [&](std::int32_t from) {
          return Target{out_of(op, from * op.count), bytes_of(op)};
        });
  }

  void swap(const CommOp& op, const Places& places) {
    keep_own(out_of(op, rank() * op.count), in_of(op, rank() * op.count), bytes_of(op));
    exchange(
        places, rank() * bytes_of(op),
        [&](std::int32_t to) {
          return Source{in_of(op, to * op.count), bytes_of(op)};
        },
        [&](std::int32_t from) {
          return Target{out_of(op, from * op.count), bytes_of(op)};
        });
  }

  void broadcast(const CommOp& op, const Places& places) {
    const bool sends = rank() == op.peer;
    exchange(
        places, 0,
        [&](std::int32_t) {
          return sends ? Source{out_of(op), bytes_of(op)} : Source{};
        },
        [&](std::int32_t from) {
          return from == op.peer ? Target{out_of(op), bytes_of(op)} : Target{};
        });
  }

  void meet() {
    for (std::int32_t k = 1; k < layout_.size(); ++k) lanes_.push(layout_.next(k), nullptr, 0);
    for (std::int32_t k = 1; k < layout_.size(); ++k) {
      lanes_.await(layout_.before(k));
      lanes_.release(layout_.before(k));
    }
  }

  // Sends each member its range of elements and adds up the own one, into `to`.
  template <class RangeOf>
  void reduce(const CommOp& op, const void* data, std::byte* to, RangeOf range_of) {
    const auto* const from = static_cast<const std::byte*>(data);
    const std::int64_t size = size_of(op.dtype), step = layout_.slot_bytes() / size;
    const Range own = range_of(rank());
    for (std::int64_t at = 0; at < range_of(0).count; at += step) {  // no range is longer
      for (std::int32_t k = 1; k < layout_.size(); ++k)
        if (const Range theirs = range_of(layout_.next(k)); at < theirs.count)
          lanes_.push(layout_.next(k), from + (theirs.first + at) * size,
                      std::min(step, theirs.count - at) * size);
      if (at < own.count)
        fold(op, from + (own.first + at) * size, to + at * size, std::min(step, own.count - at));
    }
  }

  // Adds up what is at `mine` here and what the next message of each other member brings.
  void fold(const CommOp& op, const std::byte* mine, std::byte* to, std::int64_t count) {
    Summands summands;
    summands.members = layout_.size();
    summands.to = to, summands.count = count;
    summands.dtype = op.dtype, summands.reduction = op.reduction;
    summands.from[static_cast<std::size_t>(rank())] = mine;
    for (std::int32_t k = 1; k < layout_.size(); ++k)
      summands.from[static_cast<std::size_t>(layout_.before(k))] = lanes_.await(layout_.before(k));
    lanes_.fold(summands);
    for (std::int32_t k = 1; k < layout_.size(); ++k) lanes_.release(layout_.before(k));
  }

  // The sum may go where the operand lies, so it waits until that was sent.
  void reduce_whole(const CommOp& op) {
    if (op.count == 0) return;
    for (std::int32_t k = 1; k < layout_.size(); ++k) lanes_.push(layout_.next(k), in_of(op), bytes_of(op));
    lanes_.join();
    fold(op, in_of(op), out_of(op), op.count);
  }

  void reduce_in_parts(const CommOp& op, const Places& places) {
    const auto part = [&](std::int32_t member) {
      return part_of(op.count, op.dtype, member, layout_.size());
    };
    const Range own = part(rank());
    reduce(op, op.in, out_of(op, own.first), part);
    lanes_.fork();
    const std::int64_t size = size_of(op.dtype);
    exchange(
        places, own.first * size,
        [&](std::int32_t) {
          return Source{out_of(op, own.first), own.count * size};
        },
        [&](std::int32_t from) {
          return Target{out_of(op, part(from).first), part(from).count * size};
        });
  }

  const Layout& layout_;
  Lanes& lanes_;
};

}  // namespace prun::copies
