// Finds which chunk of a sequence goes in front of which, for kernels of all devices.
#pragma once

#include "prun/ops/halo.hpp"
#include "prun/sequence_order.hpp"

// Code that is compiled for several instruction sets must not be shared by them.
#ifdef PRUN_ISA
namespace prun::cpu::PRUN_ISA {
#else
namespace prun::cuda {
#endif

// Says how a rank's part of the sequences is cut into chunks of so many `rows`, and which chunks are its own.
// A chunk takes `reach` positions from the chunk that is `distance` before it. A whole sequence has `parts`;
// with `chunks`, they lie in another order.
struct HaloChunks {
  std::int64_t rows, reach, distance = 0, parts = 0, chunks = 0;
  std::int64_t count = 0;  // chunks of a sample here
  std::int64_t first = 0;  // the place of the first of them among all

  static constexpr std::int64_t elsewhere = -1, nowhere = -2;

  SequenceOrder order() const { return {chunks > 0 ? 1 : 0, chunks}; }
  // Returns the chunk here that comes `by` behind chunk j here; `elsewhere` if another rank has it, and
  // `nowhere` if the sequence ends before it.
  std::int64_t behind(std::int64_t j, std::int64_t by) const {
    const std::int64_t number = order().position(first + j) + by;
    if (number < 0 || number >= parts) return nowhere;
    for (std::int64_t other = 0; other < count; ++other)
      if (order().position(first + other) == number) return other;
    return elsewhere;
  }
};

template <class Op>
HaloChunks own_chunks(const ArgsOf<Op>& op) {
  return {op.integer("rows"), op.integer("reach")};
}

// Makes it where a chunk looks for another one: `x` has the chunks' own rows.
template <class Op>
HaloChunks all_chunks(const ArgsOf<Op>& op) {
  const Tensor& x = op["x"];
  HaloChunks c{op.integer("rows"), op.integer("reach"), op.integer("distance"), op.integer("parts"),
               op.integer("chunks")};
  c.count = x.dim[1] / c.rows;
  c.first = x.start[1] / c.rows;
  return c;
}

// Says whether a rank has whole chunks.
template <class Op>
bool has_chunks(const ShapeOf<Op>& s) {
  return s["x"].dims[1].extent % s.integer("rows") == 0;
}
}
