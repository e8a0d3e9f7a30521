#include "execute/staging.hpp"

#include <algorithm>

namespace prun {
namespace {

constexpr std::int64_t alignment = 64;

std::byte* bytes_of(const void* memory) { return static_cast<std::byte*>(const_cast<void*>(memory)); }

// Of an operation: what it reads and writes, and where either lies in the pinned memory.
struct Sides {
  std::int64_t in = 0, out = 0;
  std::int64_t in_at = 0, out_at = 0;

  std::int64_t end() const { return std::max(in_at + in, out_at + out); }
};

Sides sides_of(const CommOp& op, std::int64_t members) {
  const std::int64_t part = op.count * size_of(op.dtype), all = part * members;
  Sides sides;
  switch (op.kind) {
    case CommKind::all_reduce: sides = {part, part}; break;
    case CommKind::all_gather: sides = {part, all}; break;
    case CommKind::reduce_scatter: sides = {all, part}; break;
    case CommKind::broadcast: sides = {0, part}; break;
    case CommKind::all_to_all: sides = {all, all}; break;
    case CommKind::send: sides = {part, 0}; break;
    case CommKind::recv: sides = {0, part}; break;
    case CommKind::barrier: return sides;
  }
  const std::byte *const in = bytes_of(op.in), *const out = bytes_of(op.out);
  const bool together = sides.in > 0 && sides.out > 0 && in < out + sides.out && out < in + sides.in;
  if (together) {
    sides.in_at = std::max<std::int64_t>(0, in - out);
    sides.out_at = std::max<std::int64_t>(0, out - in);
  } else {
    sides.out_at = (sides.in + alignment - 1) / alignment * alignment;
  }
  return sides;
}

std::int64_t bytes_of(std::span<const CommOp> ops, std::int64_t members) {
  std::int64_t bytes = 0;
  for (const CommOp& op : ops) bytes = std::max(bytes, sides_of(op, members).end());
  return bytes;
}

}  // namespace

Staging::Staging(DeviceInterface& device, std::span<const CommOp> ops, std::int64_t members)
    : device_(device), members_(members), memory_(device, bytes_of(ops, members)) {}

CommOp Staging::staged(const CommOp& op) const {
  const Sides sides = sides_of(op, members_);
  CommOp moved = op;
  moved.in = sides.in > 0 ? memory_.data() + sides.in_at : nullptr;
  moved.out = sides.out > 0 ? memory_.data() + sides.out_at : nullptr;
  return moved;
}

// The root of a broadcast sends what it has where all the others receive.
Status Staging::bring(const CommOp& op) const {
  const Sides sides = sides_of(op, members_);
  if (sides.in > 0) return device_.download(memory_.data() + sides.in_at, op.in, sides.in);
  if (op.kind == CommKind::broadcast)
    return device_.download(memory_.data() + sides.out_at, op.out, sides.out);
  return {};
}

Status Staging::take(const CommOp& op) const {
  const Sides sides = sides_of(op, members_);
  return sides.out > 0 ? device_.upload(op.out, memory_.data() + sides.out_at, sides.out) : Status{};
}

}  // namespace prun
