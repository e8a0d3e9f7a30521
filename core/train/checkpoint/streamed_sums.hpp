// Compares checksums of what is written with those from the last comparison of ranks: what changed in between
// is not saved.
#pragma once

#include "train/checkpoint/saved_pieces.hpp"
#include "train/checkpoint/saved_state.hpp"

namespace prun {

class StreamedSums {
 public:
  StreamedSums() = default;
  StreamedSums(const SavedSums& wanted, const std::vector<HeldSlice>& slices);

  // Adds a piece; pieces of a slice come in any order, each once. With the last of them, it throws diverged
  // if the sum differs.
  void add(const HeldSlice& slice, const SavedPiece& piece, std::span<const std::byte> bytes);

 private:
  struct Sum {
    std::uint64_t sum = 0;
    std::int64_t left = 0;  // number of elements
  };
  SavedSums wanted_;
  std::vector<Sum> sums_;
};

}  // namespace prun
