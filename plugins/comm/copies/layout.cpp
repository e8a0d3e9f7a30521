#include "layout.hpp"

namespace prun::copies {
namespace {

constexpr std::int64_t alignment = 4096;
// A round trip more takes longer than this many bytes from each member.
constexpr std::int64_t small_bytes = std::int64_t{256} << 10;

}  // namespace

Layout::Layout(std::int32_t rank, std::int32_t size, std::int64_t buffer_bytes, std::int64_t message_bytes,
               std::int32_t lanes)
    : rank_(rank),
      size_(size),
      lanes_(std::min(lanes, size - 1)),
      slot_bytes_(std::min(message_bytes, buffer_bytes / (slots * std::max(1, size - 1))) / alignment *
                  alignment) {
  PRUN_CHECK(rank >= 0 && rank < size && slot_bytes_ > 0 && lanes > 0, "member ", rank, " of ", size,
             " with ", buffer_bytes, " bytes and ", lanes, " at a time");
}

std::int64_t Layout::offset(std::int32_t to, std::int32_t from, std::uint64_t number) const {
  const std::int64_t sender = from < to ? from : from - 1;
  return (sender * slots + static_cast<std::int64_t>(number % slots)) * slot_bytes_;
}

Range part_of(std::int64_t count, DType dtype, std::int32_t member, std::int32_t size) {
  const std::int64_t unit = 256 / size_of(dtype), even = (count + size - 1) / size,
                     each = (even + unit - 1) / unit * unit, first = std::min(count, member * each);
  return {first, std::min(each, count - first)};
}

bool is_small(const CommOp& op, const Layout& layout) {
  return op.count * size_of(op.dtype) <= std::min(small_bytes, layout.slot_bytes());
}

std::int64_t placed_bytes(const CommOp& op, const Layout& layout, std::int32_t from) {
  const std::int64_t bytes = op.count * size_of(op.dtype);
  switch (op.kind) {
    case CommKind::all_gather:
    case CommKind::all_to_all: return bytes;
    case CommKind::broadcast: return from == op.peer ? bytes : 0;
    case CommKind::all_reduce:
      if (is_small(op, layout)) return 0;
      return part_of(op.count, op.dtype, from, layout.size()).count * size_of(op.dtype);
    case CommKind::reduce_scatter:
    case CommKind::send:
    case CommKind::recv:
    case CommKind::barrier: break;
  }
  return 0;
}

Traffic traffic_of(const CommOp& op, const Layout& layout) {
  const auto bytes = static_cast<std::uint64_t>(op.count * size_of(op.dtype));
  const auto others = static_cast<std::uint64_t>(layout.size() - 1);
  switch (op.kind) {
    case CommKind::all_reduce: {
      if (is_small(op, layout)) return {others * bytes, others * bytes};
      const std::int64_t own = part_of(op.count, op.dtype, layout.rank(), layout.size()).count;
      const std::uint64_t mine = static_cast<std::uint64_t>(own * size_of(op.dtype)), rest = bytes - mine;
      return {rest + others * mine, others * mine + rest};
    }
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return {others * bytes, others * bytes};
    case CommKind::broadcast:
      return layout.rank() == op.peer ? Traffic{others * bytes, 0} : Traffic{0, bytes};
    case CommKind::send: return {bytes, 0};
    case CommKind::recv: return {0, bytes};
    case CommKind::barrier: return {};
  }
  return {};
}

}  // namespace prun::copies
