// Defines the two kinds of products of groups of rows. A job says what a group's outputs are and how a thread
// copies its share of each factor of a stage; and, for blocks that share the right factor, of which tensor
// that is a box.
#pragma once

#include "experts/cuda_grouped.cuh"

namespace prun::cuda::tensor_grouped_parts {

// Describes the tensor of all stages' right factors: planes of rows of `columns` columns.
struct RightTensor {
  const bf16* data;
  std::int64_t columns, rows, planes;
};

// In a product over channels, the outputs are the group's rows, and the right factor is its weight.
template <bool turned>
struct RowsJob {
  static constexpr bool left_turned = false, right_turned = turned;
  static constexpr int strip_row = 256;  // bytes of a row of results at a time, in pairs
  GroupedProduct call;

  __device__ int height(int own) const { return own; }
  __device__ int width() const { return static_cast<int>(call.n); }
  __device__ int channels(int) const { return static_cast<int>(call.k); }
  __device__ bool adds() const { return false; }
  __device__ bf16* outputs(const Tile& tile) const { return call.to + tile.begin * call.n; }

  RightTensor right(const RowGroups& groups) const {
    return {call.weight, turned ? call.n : call.k, turned ? call.k : call.n, groups.groups};
  }
  __device__ static int right_row(const Tile&) { return 0; }
  __device__ static int right_plane(const Tile& tile) { return tile.group; }
  // A weight ends with its plane.
  __device__ static int right_rows(const Tile&, int) { return depth; }

  template <int copiers>
  struct Left {
    using Own = Share<copiers>;
    int from[rows / Own::rows];  // has rows; -1: beyond the group's

    __device__ void begin(const RowsJob& job, const Tile& tile) {
#pragma unroll
      for (int i = 0; i < rows / Own::rows; ++i)
        from[i] = mapped(job.call.from, tile.begin + tile.output_row(Own::row() + Own::rows * i), tile.end);
    }

    __device__ void copy(const RowsJob& job, const Tile&, int step, bf16* panels) const {
      const int k = static_cast<int>(job.call.k), channel = step * depth + Own::channel();
      bf16* const to = Own::chunk(panels);
#pragma unroll
      for (int i = 0; i < rows / Own::rows; ++i)
        copy_or_clear_async(to + i * Own::turn, job.call.from.data + from[i] * job.call.k + channel,
                            from[i] >= 0 && channel < k);
    }
  };

  template <int copiers>
  struct Right {
    using Own = Share<copiers>;
    const bf16* weight;

    __device__ void begin(const RowsJob& job, const Tile& tile) {
      weight = job.call.weight + tile.group * (job.call.n * job.call.k);
    }

    __device__ void copy(const RowsJob& job, const Tile& tile, int step, bf16* panels) const {
      const int n = static_cast<int>(job.call.n), k = static_cast<int>(job.call.k);
      bf16* const to = Own::chunk(panels);
#pragma unroll
      for (int i = 0; i < columns / Own::rows; ++i) {
        const int row = Own::row() +
                        (turned ? step * depth + i % Own::of_panel * Own::rows : tile.column + i * Own::rows);
        const int along = Own::channel() + (turned ? tile.column + i / Own::of_panel * depth : step * depth);
        const std::int64_t width = turned ? n : k;
        copy_or_clear_async(to + i * Own::turn, weight + row * width + along,
                            row < (turned ? k : n) && along < width);
      }
    }
  };
};

// Is a factor of a sum's stage: columns of the group's rows. Their places are looked up a step ahead.
template <int extent, int copiers>
struct TurnedRows {
  using Own = Share<copiers>;
  int next[Own::of_panel];

  __device__ void look(const MappedRows& from, const Tile& tile, int step) {
#pragma unroll
    for (int i = 0; i < Own::of_panel; ++i)
      next[i] = mapped(from, tile.begin + step * depth + Own::row() + Own::rows * i, tile.end);
  }
  // Panels begin `apart` columns apart.
  __device__ void copy(const MappedRows& from, int column, int apart, std::int64_t width,
                       bf16* panels) const {
    bf16* const to = Own::chunk(panels);
#pragma unroll
    for (int i = 0; i < extent / Own::rows; ++i) {
      const int along = column + i / Own::of_panel * apart + Own::channel(), row = next[i % Own::of_panel];
      copy_or_clear_async(to + i * Own::turn, from.data + row * width + along, row >= 0 && along < width);
    }
  }
};

// In sums over a group's rows, the outputs are as large as its weight.
template <class S>
struct SumsJob {
  static constexpr bool left_turned = true, right_turned = true;
  static constexpr int strip_row = 512;  // what all columns in 16 bits are added to is copied ahead
  GroupedSums<S> call;

  __device__ int height(int own) const { return own > 0 || call.sum.begins ? static_cast<int>(call.m) : 0; }
  __device__ int width() const { return static_cast<int>(call.n); }
  // A group without rows adds up a stage of zeros.
  __device__ int channels(int own) const { return max(own, 1); }
  __device__ bool adds() const { return !call.sum.begins; }
  __device__ S* outputs(const Tile& tile) const { return call.sum.data + tile.group * (call.m * call.n); }

  RightTensor right(const RowGroups& groups) const { return {call.right, call.n, groups.rows, 1}; }
  __device__ static int right_row(const Tile& tile) { return tile.begin; }
  __device__ static int right_plane(const Tile&) { return 0; }
  // Below a group's rows are those of the next group.
  __device__ static int right_rows(const Tile& tile, int step) {
    return min(depth, tile.end - tile.begin - step * depth);
  }

  template <int copiers>
  struct Left {
    TurnedRows<rows, copiers> own;

    __device__ void begin(const SumsJob& job, const Tile& tile) {
      own.look(job.call.left, tile, 0);
      if (job.adds()) fetch_outputs<copiers>(job, tile);
    }
    __device__ void copy(const SumsJob& job, const Tile& tile, int step, bf16* panels) {
      own.copy(job.call.left, tile.row, tile.apart, job.call.m, panels);
      own.look(job.call.left, tile, step + 1);
    }
  };

  template <int copiers>
  struct Right {
    TurnedRows<columns, copiers> own;

    __device__ void begin(const SumsJob& job, const Tile& tile) { own.look({job.call.right}, tile, 0); }
    __device__ void copy(const SumsJob& job, const Tile& tile, int step, bf16* panels) {
      own.copy({job.call.right}, tile.column, depth, job.call.n, panels);
      own.look({job.call.right}, tile, step + 1);
    }
  };
};

}  // namespace prun::cuda::tensor_grouped_parts
