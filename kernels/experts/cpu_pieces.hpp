// Goes through positions in pieces, whose rows fit a workspace that does not grow with the batch, and puts
// the choices of a piece in the order of their experts, and for one expert in that of positions: a row for
// each.
#pragma once

#include <algorithm>

#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "prun/named_operands.hpp"

namespace prun::cpu::PRUN_ISA {

struct ExpertSizes {
  std::int64_t positions, choices, experts, hidden, ffn;
  std::int64_t piece;  // counts positions at a time

  ExpertSizes(std::int64_t n, std::int64_t k, std::int64_t e, std::int64_t h, std::int64_t f,
              std::int64_t bytes)
      : positions(n), choices(k), experts(e), hidden(h), ffn(f) {
    constexpr std::int64_t room = std::int64_t{64} << 20;
    const std::int64_t each = k * (4 * h + 5 * f) * bytes;
    piece = std::min(n, std::max<std::int64_t>(64, room / each));
  }
  template <class Op>
  static ExpertSizes of(const ArgsOf<Op>& op) {
    const Tensor &x = op["x"], &up = op["up"];
    return {x.outer(1), op["index"].inner(1), up.dim[0], up.dim[3], up.dim[2], x.dtype == DType::f64 ? 8 : 4};
  }
  template <class Op>
  static ExpertSizes of(const ShapeOf<Op>& s) {
    const OperandShape &x = s["x"], &index = s["index"], &up = s["up"];
    const std::int64_t choices = index.dims[index.rank - 1].extent;
    return {index.elements() / choices, choices,           up.dims[0].extent,
            up.dims[3].extent,          up.dims[2].extent, x.dtype == DType::f64 ? 8 : 4};
  }
  std::int64_t rows() const { return piece * choices; }
};

class ExpertPiece {
 public:
  // Takes what it needs from the workspace. A null `index` reserves alone.
  ExpertPiece(const ExpertSizes& sizes, const std::int32_t* index, std::int64_t first_expert,
              Scratch& scratch)
      : sizes_(sizes),
        index_(index),
        first_expert_(first_expert),
        begin_(scratch.take<std::int64_t>(sizes.experts + 1)),
        row_(scratch.take<std::int64_t>(sizes.rows())),
        choice_(scratch.take<std::int64_t>(sizes.rows())) {}

  // Calls body() for each piece, its rows in order.
  template <class Body>
  void each(const Body& body) {
    for (first_ = 0; first_ < sizes_.positions; first_ += sizes_.piece) {
      count_ = std::min(sizes_.piece, sizes_.positions - first_);
      sort();
      body();
    }
  }
  bool is_first() const { return first_ == 0; }
  std::int64_t first_position() const { return first_; }
  std::int64_t positions() const { return count_; }

  // Choices are counted from the piece's first, which has this number among all.
  std::int64_t first_choice() const { return first_ * sizes_.choices; }
  std::int64_t choices() const { return count_ * sizes_.choices; }
  // Returns -1 where another rank has the choice's expert.
  std::int64_t row_of(std::int64_t choice) const { return row_[choice]; }

  std::int64_t rows() const { return begin_[sizes_.experts]; }
  std::int64_t choice_of(std::int64_t row) const { return first_choice() + choice_[row]; }
  std::int64_t position_of(std::int64_t row) const { return first_ + choice_[row] / sizes_.choices; }

  // Calls body(expert, its first row, rows) for all experts of this rank.
  template <class Body>
  void each_expert(const Body& body) const {
    for (std::int64_t e = 0; e < sizes_.experts; ++e) body(e, begin_[e], begin_[e + 1] - begin_[e]);
  }

 private:
  // Returns the number that a choice's expert has on this rank, or -1 where another rank has it.
  std::int64_t own(std::int64_t choice) const {
    const std::int64_t e = index_[first_choice() + choice] - first_expert_;
    return e >= 0 && e < sizes_.experts ? e : -1;
  }

  // Sorts by counting, so that rows of one expert stay in the order of positions.
  void sort() const {
    std::fill_n(begin_, sizes_.experts + 1, std::int64_t{0});
    for (std::int64_t c = 0; c < choices(); ++c)
      if (const std::int64_t e = own(c); e >= 0) ++begin_[e + 1];
    for (std::int64_t e = 0; e < sizes_.experts; ++e) begin_[e + 1] += begin_[e];
    for (std::int64_t c = 0; c < choices(); ++c) {
      const std::int64_t e = own(c);
      row_[c] = e < 0 ? -1 : begin_[e]++;
      if (e >= 0) choice_[row_[c]] = c;
    }
    for (std::int64_t e = sizes_.experts; e > 0; --e) begin_[e] = begin_[e - 1];
    begin_[0] = 0;
  }

  const ExpertSizes& sizes_;
  const std::int32_t* index_;
  std::int64_t first_expert_;
  std::int64_t *begin_, *row_, *choice_;  // by expert: its rows; by choice, or -1; by row
  std::int64_t first_ = 0, count_ = 0;    // the positions of the piece
};

template <class Body>
void for_rows(const Workers& workers, const ExpertPiece& piece, const Body& body) {
  parallel_ranges(workers, piece.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

// Copies each row of the piece from its position.
template <class T>
void gather_rows(const Workers& workers, const ExpertPiece& piece, std::int64_t width, const T* from, T* to) {
  for_rows(workers, piece,
           [&](std::int64_t r) { std::copy_n(from + piece.position_of(r) * width, width, to + r * width); });
}

// Sets `to` to what the rows of one of the piece's positions come to.
template <class T, class Factor>
void combine_position(const ExpertPiece& piece, const ExpertSizes& sizes, const Compute<T>* rows,
                      std::int64_t position, T* to, const Factor& factor) {
  constexpr std::int64_t width = 256;
  for (std::int64_t begin = 0; begin < sizes.hidden; begin += width) {
    const std::int64_t n = std::min(width, sizes.hidden - begin);
    Compute<T> sum[width] = {};
    for (std::int64_t c = position * sizes.choices; c < (position + 1) * sizes.choices; ++c) {
      if (piece.row_of(c) < 0) continue;
      const Compute<T> by = factor(piece.first_choice() + c);
      const Compute<T>* const row = rows + piece.row_of(c) * sizes.hidden + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) sum[i] += by * row[i];
    }
    for (std::int64_t i = 0; i < n; ++i) store(to[begin + i], sum[i]);
  }
}

// Sets to[position] = sum of factor(choice) * the choice's row, in the order of choices.
template <class T, class Factor>
void combine_rows(const Workers& workers, const ExpertPiece& piece, const ExpertSizes& sizes,
                  const Compute<T>* rows, T* to, const Factor& factor) {
  parallel_ranges(workers, piece.positions(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      combine_position(piece, sizes, rows, t, to + (piece.first_position() + t) * sizes.hidden, factor);
  });
}

}  // namespace prun::cpu::PRUN_ISA
