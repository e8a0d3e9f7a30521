// Adds to stretches of one dimension of a value, takes them out or puts them in.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Describes x[rows, width] as rows of the dimension and all behind it.
struct PartsShape {
  std::int64_t rows, width;
};
// Is elements [begin, end) of each row; in a value of its own they follow each other. Empty: there is none.
struct RowPart {
  std::int64_t begin = 0, end = 0;
};
inline constexpr int most_row_parts = 3;

// Computes y = a, with from[i] added to the part at[i], none of which overlap. y may be a.
template <class T>
struct AddedParts {
  const T* from[most_row_parts] = {};
  RowPart at[most_row_parts] = {};
};
template <class T>
void add_parts(const T* a, const AddedParts<T>& parts, T* y, const PartsShape& shape, Stream stream);

// Takes numbers too, such as tokens.
template <class T>
void take_part(const T* x, T* y, RowPart part, const PartsShape& shape, Stream stream);

// Writes that part of y's rows, which has x's shape, and nothing else of them.
template <class T>
void put_part(const T* x, T* y, RowPart part, const PartsShape& shape, Stream stream);

}  // namespace prun::cuda
