// Sums over rows, for the gradients of biases and gains.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cpu/values.hpp"
#include "prun/kernel.hpp"

namespace prun::cpu::PRUN_ISA {

// Describes rows of `width` columns, in groups: the rows of one sample of the batch.
struct RowGroups {
  std::int64_t groups;
  std::int64_t rows;  // counts those of each group
  std::int64_t width;

  // Returns the groups of a value whose last dimensions, `inner` elements, are the columns.
  static RowGroups of(const Tensor& value, std::int64_t inner) {
    const std::int64_t rows = value.elements() / inner;
    const std::int64_t groups = rows == 1 ? 1 : value.dim[0];
    return {groups, rows / groups, inner};
  }
};

inline constexpr std::int64_t tile_width = 1024;

// Holds sums that rows are added to; `first` says that these rows begin them.
template <class Sum>
struct ColumnSums {
  Sum* data;  // null: no sum is needed
  bool first;

  static ColumnSums of(const KernelArgs& args, int operand) {
    return {args.operands[operand].as<Sum>(), args.begins(operand)};
  }
  void add(std::int64_t column, std::int64_t n, const Compute<Sum>* __restrict terms, bool begins) const {
    Sum* __restrict to = data + column;
    if (begins) {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) store(to[c], terms[c]);
      return;
    }
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) add_to(to[c], terms[c]);
  }
};

// Holds sums being built for some neighbouring columns, one row for each accumulator.
template <class Sum>
using SumTile = Compute<Sum> (*)[tile_width];

// Adds the columns' sums over all rows to Count accumulators. add_row(tile, row, column, n) adds the terms of
// n columns from `column` on to tile[0], tile[1], ... A group's terms are added up from zero, row by row, and
// then to the accumulator. So the result depends neither on the number of threads nor on how many samples
// come in one call.
template <class Sum, std::size_t Count, class AddRow>
void add_column_sums(const Workers& workers, const RowGroups& shape,
                     const std::array<ColumnSums<Sum>, Count>& sums, const AddRow& add_row) {
  const auto add_tile = [&](std::int64_t group, std::int64_t column, std::int64_t n) {
    alignas(64) Compute<Sum> tile[Count][tile_width] = {};
    for (std::int64_t r = 0; r < shape.rows; ++r) add_row(tile, group * shape.rows + r, column, n);
    for (std::size_t k = 0; k < Count; ++k)
      if (sums[k].data) sums[k].add(column, n, tile[k], sums[k].first && group == 0);
  };
  parallel_ranges(workers, shape.width, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; column += tile_width)
      for (std::int64_t group = 0; group < shape.groups; ++group)
        add_tile(group, column, std::min(tile_width, end - column));
  });
}

}  // namespace prun::cpu::PRUN_ISA
