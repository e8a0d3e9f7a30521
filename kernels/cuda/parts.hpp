// Stretches of one dimension of a value, added to, taken out or put in.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// x[rows, width]: rows of the dimension and all behind it.
struct PartsShape {
  std::int64_t rows, width;
};
// Elements [begin, end) of each row; in a value of its own they follow each other. Empty: there is none.
struct RowPart {
  std::int64_t begin = 0, end = 0;
};
inline constexpr int most_row_parts = 3;

// y = a, and from[i] added to the part at[i], of which none overlap. y may be a.
template <class T>
struct AddedParts {
  const T* from[most_row_parts] = {};
  RowPart at[most_row_parts] = {};
};
template <class T>
void add_parts(const T* a, const AddedParts<T>& parts, T* y, const PartsShape& shape, Stream stream);

// Of numbers too, such as tokens.
template <class T>
void take_part(const T* x, T* y, RowPart part, const PartsShape& shape, Stream stream);

// Writes that part of y's rows, whose shape it is, and nothing else of them.
template <class T>
void put_part(const T* x, T* y, RowPart part, const PartsShape& shape, Stream stream);

}  // namespace prun::cuda
