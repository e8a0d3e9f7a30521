// Allocates by first fit, so that repeated operations find blocks that have their size already.
#include "scratch.hpp"

#include <memory>

namespace prun::ucx {
namespace {

constexpr std::size_t page = 4096;

}  // namespace

std::byte* ScratchPool::Block::start() const {
  void* first = memory.get();
  std::size_t room = static_cast<std::size_t>(bytes) + page;
  return static_cast<std::byte*>(std::align(page, static_cast<std::size_t>(bytes), first, room));
}

std::byte* ScratchPool::take(std::int64_t bytes) {
  Block* chosen = nullptr;
  for (Block& block : blocks_) {
    if (block.used) continue;
    if (!chosen || (chosen->bytes < bytes && block.bytes > chosen->bytes)) chosen = &block;
    if (chosen->bytes >= bytes) break;
  }
  if (!chosen) return nullptr;
  if (chosen->bytes < bytes) {
    chosen->memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes) + page);
    chosen->bytes = bytes;
  }
  chosen->used = true;
  return chosen->start();
}

void ScratchPool::give_back(const std::byte* block) {
  for (Block& candidate : blocks_)
    if (candidate.used && candidate.start() == block) candidate.used = false;
}

}  // namespace prun::ucx
