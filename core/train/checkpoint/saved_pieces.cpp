#include "train/checkpoint/saved_pieces.hpp"

#include <algorithm>
#include <cstring>

#include "base/safetensors.hpp"
#include "prun/split_master.hpp"

namespace prun {

std::vector<SavedPiece> pieces_of(const std::vector<HeldSlice>& slices, const Plan& plan) {
  std::vector<SavedPiece> pieces;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const HeldSlice& held = slices[i];
    const std::int64_t size = size_of(held.type), most = checksum_chunk_bytes / size;
    const std::int32_t read = plan.save_read_of({held.value, held.instance});
    for (std::int64_t first = 0; first < held.slice.count; first += most) {
      const std::int64_t count = std::min(most, held.slice.count - first);
      pieces.push_back({i, static_cast<std::uint64_t>(first / most), first, count, count * size, read});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const SavedPiece& a, const SavedPiece& b) { return a.read < b.read; });
  return pieces;
}

void read_piece(const HeldSlice& slice, const SavedPiece& piece, const PlanMemory& memory,
                std::span<std::byte> to) {
  const std::int64_t at = slice.at + piece.first;
  if (slice.rounded == none) return memory.read(slice.value, slice.instance, at * size_of(slice.type), to);
  const std::size_t half = to.size() / 2;
  const std::int64_t offset = at * size_of(DType::u16);
  memory.read(slice.rounded, slice.instance, offset, to.first(half));
  memory.read(slice.value, slice.instance, offset, to.subspan(half));
}

void join_halves(std::span<const std::byte> halves, std::size_t first, std::span<float> joined) {
  const std::size_t count = halves.size() / sizeof(float);
  const auto half = [&](std::size_t number) {
    std::uint16_t bits;
    std::memcpy(&bits, halves.data() + number * sizeof bits, sizeof bits);
    return bits;
  };
  for (std::size_t i = 0; i < joined.size(); ++i)
    joined[i] = joined_halves(half(first + i), half(count + first + i));
}

}  // namespace prun
