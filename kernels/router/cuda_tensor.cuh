// Multiplies matrices of a router's size on tensor cores: tiles of 64 x 64 outputs, 64 of the summed
// dimension at a time, of which the next are on their way to registers while those in shared memory are
// multiplied. Every output is a sum in the order of that dimension, whatever else there is. A factor in float
// is the sum of two in bf16, the nearest one and its difference to the value: 16 bits of each value.
#pragma once

#include "cuda/device.cuh"
#include "cuda/shared_rows.cuh"
#include "cuda/tensor_core.cuh"

namespace prun::cuda::router_parts {

inline constexpr int tile = 64, threads = 128, chunks = 4;  // of eight values, for each thread

// A source says where a tile of a factor lies: in rows of `width` values, of which some are there. By rows
// means that rows are outputs and columns are summed, otherwise the other way round.
template <class A>
struct Source {
  const A* data;
  std::int64_t width, row, row_end, column, column_end;

  __device__ void advance(bool by_rows) { (by_rows ? column : row) += tile; }
};

// A panel holds a factor's tile in shared memory, rows as they lie in memory.
template <class A>
struct Panel {
  static constexpr bool two = std::is_same_v<A, float>;
  bf16 nearest[tile * tile], missing[two ? tile * tile : 8];
};

// Here a thread keeps its part of a factor's next tile.
template <class A>
struct Next {
  Pack<A, 8> of[chunks];

  __device__ static int row(int i) { return thread_over(8) + i * threads / 8; }

  __device__ void read(const Source<A>& from) {
    const std::int64_t column = from.column + thread_modulo(8) * 8;
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const std::int64_t r = from.row + row(i);
      of[i] = {};
      if (r < from.row_end && column < from.column_end)
        of[i] = load_pack<8>(from.data + r * from.width + column);
    }
  }
  __device__ void put(Panel<A>& to) const {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      if constexpr (Panel<A>::two) {
        Lanes<float, 8> values = unpack(of[i]);
        const Pack<bf16, 8> nearest = pack<bf16>(values);
        const Lanes<float, 8> there = unpack(nearest);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] -= there[e];
        store_pack(at(to.nearest, i), nearest);
        store_pack(at(to.missing, i), pack<bf16>(values));
      } else {
        store_pack(at(to.nearest, i), of[i]);
      }
    }
  }

 private:
  __device__ static bf16* at(bf16* panel, int i) {
    return SharedRows<tile>{panel}.at(row(i), thread_modulo(8));
  }
};

// A warp sums up 32 x 32 outputs.
struct Sums {
  float of[2][4][4] = {};

  __device__ static int row() { return thread_over(64) * 32; }
  __device__ static int column() { return thread_modulo(64) / 32 * 32; }

  template <bool by_rows>
  __device__ static void load_left(Pair (&to)[2][4], bf16* panel, int sixteen) {
    const SharedRows<tile> rows{panel};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if constexpr (by_rows)
        load_matrices(to[i], rows.left(row() + 16 * i, 2 * sixteen));
      else
        load_matrices_turned(to[i], rows.right(16 * sixteen, row() / 8 + 2 * i));
  }
  template <bool by_rows>
  __device__ static void load_right(Pair (&to)[2][4], bf16* panel, int sixteen) {
    const SharedRows<tile> rows{panel};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if constexpr (by_rows)
        load_matrices(to[i], rows.right(column() + 16 * i, 2 * sixteen));
      else
        load_matrices_turned(to[i], rows.left(16 * sixteen, column() / 8 + 2 * i));
  }

  __device__ void add(const Pair (&left)[2][4], const Pair (&right)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        multiply_add(of[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
  }

  template <class A, bool left_by_rows, bool right_by_rows>
  __device__ void add(Panel<A>& left, Panel<bf16>& right) {
#pragma unroll
    for (int sixteen = 0; sixteen < tile / 16; ++sixteen) {
      Pair a[2][4], b[2][4];
      load_right<right_by_rows>(b, right.nearest, sixteen);
      if constexpr (Panel<A>::two) {
        load_left<left_by_rows>(a, left.missing, sixteen);
        add(a, b);
      }
      load_left<left_by_rows>(a, left.nearest, sixteen);
      add(a, b);
    }
  }

  // Rows have n values, n a multiple of 8.
  template <class Out>
  __device__ void put(Out* to, std::int64_t first_row, std::int64_t first_column, std::int64_t m,
                      std::int64_t n) const {
    const std::int64_t top = first_row + row() + thread_modulo(32) / 4,
                       left = first_column + column() + thread_modulo(4) * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::int64_t at_row = top + 16 * i + 8 * r, at_column = left + 8 * j;
          if (at_row < m && at_column < n)
            store_lanes(to + at_row * n + at_column, Lanes<float, 2>{{of[i][j][2 * r], of[i][j][2 * r + 1]}});
        }
  }
};

// Computes a tile; the sources begin where the summed dimension does.
template <class A, class Out, bool left_by_rows, bool right_by_rows>
__device__ __forceinline__ void multiply_tile(Source<A> left, Source<bf16> right, std::int64_t steps, Out* to,
                                              std::int64_t row, std::int64_t column, std::int64_t m,
                                              std::int64_t n) {
  __shared__ __align__(16) Panel<A> at_left;
  __shared__ __align__(16) Panel<bf16> at_right;
  Next<A> next_left;
  Next<bf16> next_right;
  const auto read = [&] {
    next_left.read(left), next_right.read(right);
    left.advance(left_by_rows), right.advance(right_by_rows);
  };
  Sums sums;
  read();
  for (std::int64_t step = 0; step < steps; ++step) {
    next_left.put(at_left), next_right.put(at_right);
    __syncthreads();
    if (step + 1 < steps) read();
    sums.template add<A, left_by_rows, right_by_rows>(at_left, at_right);
    __syncthreads();
  }
  sums.put(to, row, column, m, n);
}

}  // namespace prun::cuda::router_parts
