// Implements what brings chunks of a sequence the positions in front of them (core/ops/halo.cpp), for values
// of any type with rows by position; add_tails alone computes.
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> halo_kernels();

namespace {

using Index = std::int64_t;

// Says how a rank's part of the sequences is cut, and which chunks are its own.
struct Chunks {
  Index rows, reach, distance = 0, parts = 0, chunks = 0;
  Index count = 0;  // chunks of a sample here
  Index first = 0;  // the place of the first of them among all

  SequenceOrder order() const { return {chunks > 0 ? 1 : 0, chunks}; }
  // Returns the chunk that comes `by` behind chunk j here: one of these, or, if it is not here, -1 where
  // there is such a chunk and -2 where the sequence ends.
  static constexpr Index elsewhere = -1, nowhere = -2;
  Index behind(Index j, Index by) const {
    const Index number = order().position(first + j) + by;
    if (number < 0 || number >= parts) return nowhere;
    for (Index other = 0; other < count; ++other)
      if (order().position(first + other) == number) return other;
    return elsewhere;
  }
};

Chunks chunks_of(const KernelArgs& args) { return {args.attrs[0].i, args.attrs[1].i}; }

// Makes it where `x` has the chunks' own rows.
Chunks chunks_of(const KernelArgs& args, const Tensor& x) {
  Chunks c{args.attrs[0].i, args.attrs[1].i, args.attrs[2].i, args.attrs[3].i, args.attrs[4].i};
  c.count = x.dim[1] / c.rows;
  c.first = x.start[1] / c.rows;
  return c;
}

// Returns the elements of a row, which is of one position.
Index width_of(const Tensor& x) { return x.inner(x.rank - 2); }
Index bytes_of_row(const Tensor& x) { return width_of(x) * size_of(x.dtype); }

// Calls body(row) for all rows of a value.
template <class Body>
void for_rows(const Tensor& x, const KernelContext& context, const Body& body) {
  constexpr Index grain = 64;
  parallel_ranges(*context.workers, x.dim[0] * x.dim[1], grain, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) body(row);
  });
}

// Copies a row, or clears it where there is none to copy.
void copy_row(const Tensor& to, Index row, const Tensor& from, Index other) {
  const auto bytes = static_cast<std::size_t>(bytes_of_row(to));
  if (other < 0)
    std::memset(to.as<char>() + row * bytes_of_row(to), 0, bytes);
  else
    std::memcpy(to.as<char>() + row * bytes_of_row(to), from.as<const char>() + other * bytes_of_row(to),
                bytes);
}

void halo_tails(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &tails = args.operands[1];
  const Chunks c = chunks_of(args);
  for_rows(tails, context, [&](Index row) {
    copy_row(tails, row, x, row / c.reach * c.rows + c.rows - c.reach + row % c.reach);
  });
}

void join_halo(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &halo = args.operands[1], &y = args.operands[2];
  const Chunks c = chunks_of(args, x);
  for_rows(y, context, [&](Index row) {
    const Index chunk = row / (c.reach + c.rows), i = row % (c.reach + c.rows), j = chunk % c.count;
    if (i >= c.reach) return copy_row(y, row, x, chunk * c.rows + i - c.reach);
    const Index from = c.behind(j, -c.distance);
    if (from >= 0) return copy_row(y, row, x, (chunk - j + from + 1) * c.rows - c.reach + i);
    copy_row(y, row, halo, from == Chunks::elsewhere ? chunk * c.reach + i : -1);
  });
}

void part_halo(const KernelArgs& args, const KernelContext& context) {
  const Tensor &y = args.operands[0], &x = args.operands[1], &halo = args.operands[2];
  const Chunks c = chunks_of(args);
  for_rows(y, context, [&](Index row) {
    const Index chunk = row / (c.reach + c.rows), i = row % (c.reach + c.rows);
    if (i < c.reach)
      copy_row(halo, chunk * c.reach + i, y, row);
    else
      copy_row(x, chunk * c.rows + i - c.reach, y, row);
  });
}

template <class T>
void add_tails(const KernelArgs& args, const KernelContext& context) {
  const Tensor *o = args.operands, &y = o[3];
  const Chunks c = chunks_of(args, o[0]);
  const Index width = width_of(y);
  for_rows(y, context, [&](Index row) {
    copy_row(y, row, o[0], row);
    const Index i = row % c.rows - (c.rows - c.reach), chunk = row / c.rows, j = chunk % c.count;
    const Index reader = i < 0 ? Chunks::nowhere : c.behind(j, c.distance);
    if (reader == Chunks::nowhere) return;
    const Tensor& tails = reader >= 0 ? o[2] : o[1];
    const Index from = reader >= 0 ? chunk - j + reader : chunk;
    T* to = y.as<T>() + row * width;
    const T* added = tails.as<const T>() + (from * c.reach + i) * width;
    for (Index d = 0; d < width; ++d) store(to[d], load(to[d]) + load(added[d]));
  });
}

// Says whether a rank has whole chunks.
bool has_chunks(const OpShape& s, int x) { return s.operand[x].dims[1].extent % s.attrs[0].i == 0; }

template <Kernel kernel, int x>
Kernel select_moves(const OpShape& s) {
  return has_chunks(s, x) ? kernel : nullptr;
}

Kernel select_add(const OpShape& s) {
  if (!same_type(s, {0, 1, 2}) || !has_chunks(s, 0)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return add_tails<T>; });
}

}  // namespace

std::vector<KernelDef> halo_kernels() {
  return {{"halo_tails", select_moves<halo_tails, 0>},
          {"join_halo", select_moves<join_halo, 0>},
          {"part_halo", select_moves<part_halo, 1>},
          {"add_tails", select_add}};
}

}  // namespace prun::cpu::PRUN_ISA
