#include "train/checkpoint/streamed_sums.hpp"

#include "execute/device_checksums.hpp"

namespace prun {

StreamedSums::StreamedSums(const SavedSums& wanted, const std::vector<HeldSlice>& slices) : wanted_(wanted) {
  if (wanted_.empty()) return;
  for (const HeldSlice& slice : slices) sums_.push_back({0, slice.slice.count});
}

// Adds a piece: of two halves, the upper one is a tensor of its own.
void StreamedSums::add(const HeldSlice& slice, const SavedPiece& piece, std::span<const std::byte> bytes) {
  if (wanted_.empty() || !wanted_[piece.slice]) return;
  const bool halves = slice.rounded != none;
  if (halves) bytes = bytes.subspan(bytes.size() / 2);
  Sum& own = sums_[piece.slice];
  own.sum += checksum_of(size_of(halves ? DType::u16 : slice.type), bytes, piece.first);
  own.left -= piece.count;
  if (own.left == 0 && own.sum != *wanted_[piece.slice])
    throw_error(ErrorCode::diverged, "what was read of '", slice.tensor,
                "' to be saved is not what all ranks had alike right before; a processor, a memory or a link "
                "has given a wrong number. Go on from the newest checkpoint, without the hardware that is at "
                "fault");
}

}  // namespace prun
