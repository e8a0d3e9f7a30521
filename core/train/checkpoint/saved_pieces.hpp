// Cuts what a rank saves into the pieces in which it is read and written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "execute/plan_memory.hpp"
#include "plan/persistent.hpp"

namespace prun {

// Names the part of a slice that has its own checksum in the file: 4 MiB, or what the last one has left.
struct SavedPiece {
  std::size_t slice = 0;
  std::uint64_t chunk = 0;
  std::int64_t first = 0, count = 0;  // range of the slice's elements
  std::int64_t bytes = 0;
  std::int32_t read = 0;  // read of the plan that has its bytes
};

// Returns pieces in the order in which they must be read: that of the plan's reads, as far as there are any.
std::vector<SavedPiece> pieces_of(const std::vector<HeldSlice>& slices, const Plan& plan);

// Reads the piece as it is stored: a float that is stored in two halves gives those, one after the other.
void read_piece(const HeldSlice& slice, const SavedPiece& piece, const PlanMemory& memory,
                std::span<std::byte> to);

// Makes floats of two halves that lie one behind the other, from element `first` on.
void join_halves(std::span<const std::byte> halves, std::size_t first, std::span<float> joined);

}  // namespace prun
