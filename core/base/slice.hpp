// Describes which elements of a whole tensor are stored somewhere: a box of it, or a range of a box's
// elements, row by row.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "prun/types.hpp"

namespace prun {

using Extents = std::vector<std::int64_t>;

std::int64_t elements_of(const Extents& shape);
// Returns a text such as "[8,16]", cut if it has too many extents.
std::string shape_text(const Extents& shape);

struct Slice {
  Extents whole, start, extent;       // by dimension: of the tensor; begin of the box in it; of the box
  std::int64_t first = 0, count = 0;  // range of the box's elements

  bool is_box() const { return first == 0 && count == elements_of(extent); }
  bool is_whole() const { return is_box() && extent == whole; }
  friend auto operator<=>(const Slice&, const Slice&) = default;  // NOLINT: no null in it
};

Slice whole_slice(const Extents& shape);

// Describes a slice of a tensor that has a name.
struct TensorSlice {
  std::string tensor;  // name such as "block.3.qkv.weight", "block.3.qkv.weight.m"
  DType type = DType::f32;
  Slice slice;

  std::int64_t bytes() const { return slice.count * size_of(type); }
};

// Describes consecutive elements, both in a part and in the whole.
struct Stretch {
  std::int64_t part = 0, whole = 0, count = 0;
};

// Returns the stretches of a slice, in order; `part` counts the slice's elements.
std::vector<Stretch> stretches(const Slice& slice);

// Returns where an element of a slice is in the whole tensor.
std::int64_t whole_index(const Slice& slice, std::int64_t element);

}  // namespace prun
