// Says which runs of positions a rank has where ranks share out sequences (kernels/rules/run_shapes.hpp), for
// kernels of all devices.
#pragma once

#include <cstdint>

#include "prun/kernel.hpp"
#include "prun/sequence_order.hpp"

namespace prun {

struct SequenceRuns {
  std::int64_t rows = 1;   // positions of a run
  std::int64_t ahead = 0;  // that stand in front of each run, where a value has them
  std::int64_t first = 0;  // place of the first position here
  SequenceOrder order = {};

  // Is that of whole sequences.
  static constexpr SequenceRuns whole(std::int64_t seq) { return {seq}; }
  // `x` has runs of so many rows alone; `chunks` is an op's attribute.
  static SequenceRuns of(const Tensor& x, std::int64_t rows, std::int64_t chunks, std::int64_t ahead = 0) {
    return {rows, ahead, x.start[1], {chunks > 0 ? rows : 0, chunks}};
  }

  // Returns the position of row i here,
  constexpr std::int64_t position(std::int64_t i) const { return order.position(first + i); }
  // how much further on in the sequence it is than in what is here,
  constexpr std::int64_t shift(std::int64_t i) const { return position(i) - i; }
  // and the row that it has where some stand in front of each run.
  constexpr std::int64_t with_ahead(std::int64_t i) const { return i + (i / rows + 1) * ahead; }
};

}  // namespace prun
