// Says which matrices an op of whole matrices finds in its operand, and which of them a rank updates, for
// kernels/cpu and kernels/cuda alike, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "prun/named_operands.hpp"

namespace prun {

// Is a matrix, dense and row by row, from element `offset` on.
struct MatrixPiece {
  std::int64_t offset = 0, rows = 0, columns = 0;

  // Returns the scale of the op `orthogonalize`, by its attribute.
  double scale(std::int64_t by) const {
    const auto high = static_cast<double>(rows), wide = static_cast<double>(columns);
    return by == 2   ? 0.2 * std::sqrt(std::max(high, wide))
           : by == 1 ? std::sqrt(std::max(1.0, high / wide))
                     : 1.0;
  }
};

namespace detail {
inline std::int64_t extent(const Tensor& x, int d) { return x.dim[d]; }
inline std::int64_t extent(const OperandShape& x, int d) { return x.dims[d].extent; }
}  // namespace detail

// Says how many dimensions number matrices and columns, and up to three places to cut.
struct MatrixCuts {
  std::int64_t batch, columns, cuts[3];
};

// Returns those of `orthogonalize`, whose attributes `op` shows.
template <class Op>
MatrixCuts matrix_cuts(const Op& op) {
  return {op.integer("batch"),
          op.integer("columns"),
          {op.integer("cut1"), op.integer("cut2"), op.integer("cut3")}};
}

template <class Operand>
std::vector<MatrixPiece> matrix_pieces(const Operand& x, const MatrixCuts& by) {
  const int first = static_cast<int>(by.batch), last = x.rank - static_cast<int>(by.columns);
  std::int64_t batch = 1, inner = 1, columns = 1;
  for (int d = 0; d < first; ++d) batch *= detail::extent(x, d);
  for (int d = first + 1; d < last; ++d) inner *= detail::extent(x, d);
  for (int d = last; d < x.rank; ++d) columns *= detail::extent(x, d);
  std::vector<std::int64_t> ends;
  for (int cut = 0; cut < 3 && by.cuts[cut] > 0; ++cut) ends.push_back(by.cuts[cut]);
  ends.push_back(detail::extent(x, first));
  std::vector<MatrixPiece> pieces;
  std::int64_t offset = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      pieces.push_back({offset, (end - begin) * inner, columns});
      offset += (end - begin) * inner * columns;
      begin = end;
    }
  }
  return pieces;
}

// Holds matrices of one shape, `stride` elements from one to the next.
struct MatrixPieces {
  MatrixPiece first;
  std::int64_t stride = 0, count = 1;
};

// Joins pieces of one size: all of them, or each number of the batch gives one piece to every run.
template <class Operand>
std::vector<MatrixPieces> alike_pieces(const Operand& x, const MatrixCuts& by) {
  const std::vector<MatrixPiece> pieces = matrix_pieces(x, by);
  const auto count = static_cast<std::int64_t>(pieces.size());
  const auto size = [](const MatrixPiece& piece) { return piece.rows * piece.columns; };
  if (std::all_of(pieces.begin(), pieces.end(), [&](const auto& p) { return p.rows == pieces[0].rows; }))
    return {{pieces[0], size(pieces[0]), count}};
  std::int64_t batch = 1, stride = 0;
  for (int d = 0; d < static_cast<int>(by.batch); ++d) batch *= detail::extent(x, d);
  const auto cuts = static_cast<std::size_t>(count / batch);
  for (std::size_t cut = 0; cut < cuts; ++cut) stride += size(pieces[cut]);
  std::vector<MatrixPieces> runs;
  for (std::size_t cut = 0; cut < cuts; ++cut) runs.push_back({pieces[cut], stride, batch});
  return runs;
}

// Says whether this rank has the matrices of this layer: where layers are dealt, one rank after the other
// gets one. A rank's number follows from its part of a flat range.
template <class Op>
bool is_dealt_here(const ArgsOf<Op>& op, std::int64_t layer) {
  const std::int64_t first = op.integer("first"), ranks = op.integer("ranks");
  if (ranks == 0) return true;
  const Tensor& part = op["part"];
  return (first + layer) % ranks == part.start[0] / part.dim[0];
}

// Says which part of a tensor that begins at element `offset` of a flat range lies in this part of the range.
struct PackedRange {
  std::int64_t from = 0, to = 0, count = 0;
};
inline PackedRange packed_range(const Tensor& tensor, const Tensor& packed, std::int64_t offset) {
  std::int64_t part = packed.start[packed.rank - 1];
  const std::int64_t begin = std::max(offset, part),
                     end = std::min(offset + tensor.elements(), part + packed.elements());
  if (begin >= end) return {};
  return {begin - offset, begin - part, end - begin};
}

}  // namespace prun
