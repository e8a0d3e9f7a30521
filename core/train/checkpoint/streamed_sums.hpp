// Checksums of what is written, beside those that it had when ranks were compared: what changed in between is
// not saved.
#pragma once

#include "train/checkpoint/saved_pieces.hpp"
#include "train/checkpoint/saved_state.hpp"

namespace prun {

class StreamedSums {
 public:
  StreamedSums() = default;
  StreamedSums(const SavedSums& wanted, const std::vector<HeldSlice>& slices);

  // Pieces of a slice come in any order, each once. Throws diverged with the last of them where its sum is
  // another one.
  void add(const HeldSlice& slice, const SavedPiece& piece, std::span<const std::byte> bytes);

 private:
  struct Sum {
    std::uint64_t sum = 0;
    std::int64_t left = 0;  // elements
  };
  SavedSums wanted_;
  std::vector<Sum> sums_;
};

}  // namespace prun
