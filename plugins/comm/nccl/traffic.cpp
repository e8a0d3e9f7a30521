#include "traffic.hpp"

namespace prun::nccl {

Traffic traffic_of(const CommOp& op, std::int32_t rank, std::int32_t size) {
  const auto bytes = static_cast<std::uint64_t>(op.count * size_of(op.dtype));
  const auto others = static_cast<std::uint64_t>(size - 1);
  const auto both = [](std::uint64_t each_way) { return Traffic{each_way, each_way}; };
  switch (op.kind) {
    case CommKind::all_reduce: return both(2 * others * bytes / static_cast<std::uint64_t>(size));
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return both(others * bytes);
    case CommKind::broadcast: {  // along the ring from the root, which the last one's neighbour is
      const bool last = (rank + 1) % size == op.peer;
      return {last ? 0 : bytes, rank == op.peer ? 0 : bytes};
    }
    case CommKind::send: return {bytes, 0};
    case CommKind::recv: return {0, bytes};
    case CommKind::barrier: return {};
  }
  return {};
}

}  // namespace prun::nccl
