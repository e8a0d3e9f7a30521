// Implements cutting into blocks and chunks, and scratch slots.
#include "ring.hpp"

namespace prun::ucx {

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

}  // namespace prun::ucx
