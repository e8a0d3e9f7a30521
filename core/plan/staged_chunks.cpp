#include "plan/staged_chunks.hpp"

namespace prun {
namespace {

// This is the larger buffer's size. With smaller chunks the latency of an operation shows; with larger ones
// the copies of the first and last chunk.
constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20;
constexpr std::int64_t alignment = 64;

std::int64_t align(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

StagedChunks::StagedChunks(const CommOp& op, std::int64_t members) : op_(op) {
  switch (op.kind) {
    case CommKind::all_reduce:
    case CommKind::broadcast: in_parts_ = out_parts_ = 1; break;
    case CommKind::all_gather: in_parts_ = 1, out_parts_ = members; break;
    case CommKind::reduce_scatter: in_parts_ = members, out_parts_ = 1; break;
    case CommKind::all_to_all: in_parts_ = out_parts_ = members; break;
    case CommKind::send: in_parts_ = 1; break;
    case CommKind::recv: out_parts_ = 1; break;
    case CommKind::barrier: return;
  }
  const std::int64_t size = size_of(op.dtype), parts = std::max(in_parts_, out_parts_);
  if (op.in && op.out && in_parts_ != out_parts_ && op.count > 0) {
    const auto* const in = static_cast<const std::byte*>(op.in);
    const auto* const out = static_cast<const std::byte*>(op.out);
    const std::int64_t within = in_parts_ < out_parts_ ? in - out : out - in;
    if (within >= 0 && within < parts * op.count * size) own_ = within / (op.count * size);
  }
  elements_ = std::max<std::int64_t>(alignment, chunk_bytes / (parts * size) / alignment * alignment);
  count_ = std::max<std::int64_t>(1, (op.count + elements_ - 1) / elements_);
}

std::int64_t StagedChunks::bytes() const {
  const std::int64_t part = part_bytes(0);
  return std::max(in_at(part) + in_parts_ * part, out_at(part) + out_parts_ * part);
}

CommOp StagedChunks::at(std::int64_t chunk, std::byte* pinned) const {
  const std::int64_t part = part_bytes(chunk);
  CommOp op = op_;
  op.count = elements(chunk);
  op.in = in_parts_ > 0 && op.kind != CommKind::broadcast ? pinned + in_at(part) : nullptr;
  op.out = out_parts_ > 0 ? pinned + out_at(part) : nullptr;
  return op;
}

std::int64_t StagedChunks::in_at(std::int64_t part) const {
  if (out_parts_ <= in_parts_) return 0;
  return in_parts_ == 0 ? 0 : own_ >= 0 ? own_ * part : align(out_parts_ * part);
}

// Returns where output begins: a sum may overwrite its input.
std::int64_t StagedChunks::out_at(std::int64_t part) const {
  if (out_parts_ > in_parts_ || op_.kind == CommKind::all_reduce || op_.kind == CommKind::broadcast) return 0;
  return own_ >= 0 ? own_ * part : align(in_parts_ * part);
}

void StagingSlots::take(const CommOp& op, std::int64_t members) {
  constexpr std::int64_t at_a_time = 2;  // one is sent while another is copied
  const StagedChunks chunks(op, members);
  if (chunks.count() > 1) count = at_a_time;
  bytes = std::max(bytes, chunks.bytes());
}

}  // namespace prun
