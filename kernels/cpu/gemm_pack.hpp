// Arranges the operands of the CPU matrix multiply: register tiles, slivers, and their packing. It is part of
// gemm.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "isa.hpp"
#include "prun/types.hpp"

namespace prun::cpu::PRUN_ISA::packing {

using Index = std::int64_t;

// ---- Shapes ----

// States the register tile and the blocks around it, in the order of their reuse: a sliver of a (max_rows by
// max_depth) stays in the L1 cache while inner_columns of b pass it from L2, all slivers of a group pass
// those, and the panel of b (block_columns wide) lies in L3.
template <class T>
struct Shape {
  static constexpr Index lanes = vector_lanes<T>;
  static constexpr int max_rows = vector_registers == 32 ? 14 : 6;
  static constexpr int max_vectors = 2;
  static constexpr Index columns = max_vectors * lanes;
  static constexpr Index max_depth = 2048 / Index{sizeof(T)};
  static constexpr Index group_rows = 224;
  static constexpr Index inner_columns = 256;
  static constexpr Index block_columns = 1024;
  static constexpr Index few_rows = 512;       // they use b's panel too seldom for its way to L3 and back...
  static constexpr Index few_columns = 384;    // ...so then it is small enough for L2, per thread
  static constexpr Index partial_rows = 1024;  // limits those of a block whose sums need the workspace
};

// Cuts [0, extent) into `count` contiguous parts of nearly equal length, each but the last a multiple of
// `unit`.
struct Split {
  Index extent, unit, count;

  Index begin(Index part) const { return std::min(extent, (extent + unit - 1) / unit * part / count * unit); }
  Index size(Index part) const { return begin(part + 1) - begin(part); }
};

// Cuts into the fewest parts of at most `limit`, a multiple of `unit`; at least one part, which may be empty.
inline Split split_at_most(Index extent, Index unit, Index limit) {
  const Index units = (extent + unit - 1) / unit;
  return {extent, unit, std::max<Index>(1, (units + limit / unit - 1) / (limit / unit))};
}

// Is added to the pitch of partial sums, so that rows of a tile fall into different sets of the cache.
template <class T>
constexpr Index partial_padding = 64 / Index{sizeof(T)};

// Describes how a sliver of a is laid out in memory: both distances are in elements. Slivers copied from rows
// of a keep them as rows, at a pitch that spreads them over the sets of the cache; slivers copied from
// columns, as columns.
template <class T, bool by_rows>
struct Layout {
  static constexpr Index per_row = by_rows ? Shape<T>::max_depth + 64 / Index{sizeof(T)} : 1;
  static constexpr Index per_step =
      by_rows ? 1 : (Shape<T>::max_rows + Shape<T>::lanes - 1) / Shape<T>::lanes * Shape<T>::lanes;
};

// ---- Loads ----

using HalfBits = Vector<std::uint32_t>;

// Converts f16 to float as prun/types.hpp does, lane by lane.
inline Vector<float> widened_f16(HalfBits bits) {
  const HalfBits size = bits & 0x7fffu, shifted = size << 13;
  const auto below = [&](std::uint32_t limit) { return reinterpret_cast<HalfBits>(size < limit); };
  const auto pick = [](HalfBits mask, HalfBits a, HalfBits b) { return (mask & a) | (~mask & b); };
  const HalfBits step = HalfBits{} + (113u << 23);
  const Vector<float> small =
      reinterpret_cast<Vector<float>>(shifted + step) - reinterpret_cast<Vector<float>>(step);
  const HalfBits normal =
      shifted + pick(below(0x7c00u), HalfBits{} + (112u << 23), HalfBits{} + (224u << 23));
  const HalfBits number = pick(below(0x400u), reinterpret_cast<HalfBits>(small), normal);
  return reinterpret_cast<Vector<float>>((bits & 0x8000u) << 16 | number);
}

template <class T, class S>
Vector<T> load(const S* from) {
  if constexpr (std::is_same_v<T, S>) {
    return *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(from);
  } else {
    typedef std::uint16_t Half __attribute__((vector_size(vector_bytes / 2), aligned(2), may_alias));
    const auto wide = __builtin_convertvector(*reinterpret_cast<const Half*>(from), Vector<std::uint32_t>);
    if constexpr (std::is_same_v<S, f16>)
      return widened_f16(wide);
    else
      return reinterpret_cast<Vector<T>>(wide << 16);
  }
}

template <class T>
void store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to) = value;
}

template <int distance, class V, std::size_t... lane>
[[gnu::always_inline]] inline void swap_quarters(V& low, V& high, std::index_sequence<lane...>) {
  constexpr int lanes = sizeof...(lane);
  const V a = low, b = high;
  low = __builtin_shufflevector(a, b, (lane & distance ? lanes + lane - distance : lane)...);
  high = __builtin_shufflevector(a, b, (lane & distance ? lanes + lane : lane + distance)...);
}

// Transposes a square of registers: blocks of `distance` first, then within them.
template <int lanes, int distance = lanes / 2, class V>
[[gnu::always_inline]] inline void transpose(V* rows) {
  if constexpr (distance > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
      if ((i & distance) == 0)
        swap_quarters<distance>(rows[i], rows[i + distance], std::make_index_sequence<lanes>());
    transpose<lanes, distance / 2>(rows);
  }
}

// ---- Packing ----

// Views one operand for packing: `outer` runs over rows of a or columns of b. One stride is 1.
template <class S>
struct Strip {
  const S* data;
  Index outer_stride, depth_stride;
  Index extent;  // counts positions from `data` on that may be read
};

constexpr Index chunk = 32;  // counts steps along k that are packed in one go

// Is part of one sliver: positions [outer, outer + count) over steps [begin, end) along k.
struct Piece {
  Index outer, count, begin, end;
};

// Packs to[p * width + i] from neighbours along i. Places beyond `count` get the elements there, or zero.
template <Index width, class T, class S>
void pack_straight(const Strip<S>& from, const Piece& piece, T* to) {
  const bool whole = piece.outer + width <= from.extent;
  for (Index p = piece.begin; p < piece.end; ++p) {
    const S* row = from.data + piece.outer + p * from.depth_stride;
    T* packed = to + p * width;
    if (whole) {
#pragma GCC unroll 4
      for (Index i = 0; i < width; i += vector_lanes<T>) {
        __builtin_prefetch(row + i + chunk * from.depth_stride);
        store<T>(packed + i, load<T>(row + i));
      }
    } else {
      for (Index i = 0; i < width; ++i) packed[i] = i < piece.count ? static_cast<T>(row[i]) : T{0};
    }
  }
}

// Packs to[p * width + i] from neighbours along p. Places beyond `count` repeat the last one.
template <Index width, class T, class S>
void pack_transposed(const Strip<S>& from, const Piece& piece, T* to) {
  constexpr int lanes = vector_lanes<T>;
  for (Index group = 0; group < width; group += lanes) {
    const S* rows[lanes];
    for (int i = 0; i < lanes; ++i)
      rows[i] = from.data + (piece.outer + std::min(group + i, piece.count - 1)) * from.outer_stride;
    Index p = piece.begin;
    for (; p + lanes <= piece.end; p += lanes) {
      Vector<T> square[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        square[i] = load<T>(rows[i] + p);
        __builtin_prefetch(rows[i] + p + 4 * lanes);
      }
      transpose<lanes>(square);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) store<T>(to + (p + i) * width + group, square[i]);
    }
    for (; p < piece.end; ++p)
      for (int i = 0; i < lanes; ++i) to[p * width + group + i] = static_cast<T>(rows[i][p]);
  }
}

// Packs to[i * pitch + p] from neighbours along p.
template <Index pitch, class T, class S>
void pack_rows(const Strip<S>& from, const Piece& piece, T* to) {
  for (Index i = 0; i < piece.count; ++i) {
    const S* row = from.data + (piece.outer + i) * from.outer_stride;
    Index p = piece.begin;
    for (; p + vector_lanes<T> <= piece.end; p += vector_lanes<T>)
      store<T>(to + i * pitch + p, load<T>(row + p));
    for (; p < piece.end; ++p) to[i * pitch + p] = static_cast<T>(row[p]);
  }
}

// Holds slivers side by side: sliver s has the positions of part s of `split` for `depth` steps along k.
template <class T>
struct Panel {
  T* data;
  Split split;
  Index depth;
  Index sliver_elements;

  T* sliver(Index s) const { return data + s * sliver_elements; }
};

template <class T>
Piece piece_of(const Panel<T>& panel, Index sliver, Index begin) {
  return {panel.split.begin(sliver), panel.split.size(sliver), begin, std::min(begin + chunk, panel.depth)};
}

// Packs share `task` of `tasks` of a panel of b, cut along the slivers and along k, in memory order.
template <class T, class S>
void pack_b(const Strip<S>& from, const Panel<T>& panel, Index task, Index tasks) {
  constexpr Index width = Shape<T>::columns;
  const Index slivers = panel.split.count, chunks = (panel.depth + chunk - 1) / chunk;
  const Split share{slivers * chunks, 1, tasks};
  for (Index u = share.begin(task); u < share.begin(task + 1); ++u) {
    if (from.outer_stride == 1)
      pack_straight<width>(from, piece_of(panel, u % slivers, u / slivers * chunk),
                           panel.sliver(u % slivers));
    else
      pack_transposed<width>(from, piece_of(panel, u / chunks, u % chunks * chunk), panel.sliver(u / chunks));
  }
}

// Packs a group of slivers of a.
template <bool by_rows, class T, class S>
void pack_a(const Strip<S>& from, const Panel<T>& panel) {
  using L = Layout<T, by_rows>;
  for (Index begin = 0; begin < panel.depth; begin += by_rows ? panel.depth : chunk)
    for (Index s = 0; s < panel.split.count; ++s) {
      Piece piece = piece_of(panel, s, begin);
      if constexpr (by_rows) {
        piece.end = panel.depth;
        pack_rows<L::per_row>(from, piece, panel.sliver(s));
      } else {
        pack_straight<L::per_step>(from, piece, panel.sliver(s));
      }
    }
}

}  // namespace prun::cpu::PRUN_ISA::packing
