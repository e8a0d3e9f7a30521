// Declares send_rows, send_choices, return_rows and count_rows: see kernels/rows/rows.cpp.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct RowsShape {
  std::int64_t sequences, positions, choices, parts, rows, experts;

  // Counts the rows of all parts and sequences, and the positions of all sequences.
  std::int64_t all_rows() const { return parts * sequences * rows; }
  std::int64_t all_positions() const { return sequences * positions; }
};

// Return bytes: of send_rows and send_choices, of return_rows, and of count_rows.
std::int64_t send_workspace(const RowsShape& shape);
std::int64_t return_workspace(const RowsShape& shape);
std::int64_t count_workspace(const RowsShape& shape);

template <class T>
void send_rows(const T* x, const std::int32_t* index, T* to, const RowsShape& shape, std::int64_t hidden,
               void* workspace, Stream stream);

// C is float or double.
template <class C>
void send_choices(const std::int32_t* index, const C* weight, std::int32_t* row_index, C* row_weight,
                  const RowsShape& shape, void* workspace, Stream stream);

template <class T>
struct ReturnedRows {
  const T* rows;
  const Compute<T>* numbers;  // of the rows' choices; null: they are not returned
  T* y;
  Compute<T>* choice_numbers;
};

template <class T>
void return_rows(const ReturnedRows<T>& of, const std::int32_t* index, const RowsShape& shape,
                 std::int64_t hidden, void* workspace, Stream stream);

// `needed` is the layer's own two numbers.
void count_rows(const std::int32_t* index, double* needed, double mean, const RowsShape& shape,
                void* workspace, Stream stream);

}  // namespace prun::cuda
