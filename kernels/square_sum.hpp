// States in which order the squares of a tensor's elements are added, for kernels/cpu and kernels/cuda alike:
// the norm has the same bits wherever the gradients lie.
//
// A row is 4096 elements; neighbouring rows are a part, as few as make 4096 parts at most. Column c of a part
// adds elements c, c + 256, ... of its rows, one after the other, what is missing at the end being zero.
// Columns are folded in halves within each eight that lie together, then these sums are; a tensor's parts p,
// p + 32, ... are added one after the other, then these 32 are folded. Each square is rounded once, and each
// sum.
#pragma once

#include <algorithm>
#include <cstdint>

namespace prun::square_sum {

inline constexpr std::int64_t row_elements = 4096, columns = 256, together = 8, most_parts = 4096;
inline constexpr int lanes = 32;
static_assert(columns == together * lanes);

constexpr std::int64_t pieces_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Returns the rows of a part of a tensor of `elements` elements; the last part may have fewer.
constexpr std::int64_t part_rows(std::int64_t elements) {
  return pieces_of(pieces_of(elements, row_elements), most_parts);
}
constexpr std::int64_t part_elements(std::int64_t elements) { return row_elements * part_rows(elements); }
constexpr std::int64_t parts_of(std::int64_t elements) {
  return elements == 0 ? 0 : pieces_of(elements, part_elements(elements));
}

}  // namespace prun::square_sum
