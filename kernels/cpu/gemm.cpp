// Implements the CPU matrix multiply, after the BLIS scheme. c is cut into blocks, and k into steps. For each
// block and step all threads pack their part of the panel of b, shared; then each thread takes a rectangle of
// the block, packs groups of rows of a for itself, and computes register tiles from one sliver of a and one
// of b. Packing converts to the compute type. k is never split over threads.
//
// The bits depend on k alone, because the steps over k are a function of k, each element is one chain of
// fused multiply-adds a step whatever the shape of its tile, and the steps are added in order.
#include "gemm.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gemm_pack.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

using namespace packing;

template <class A>
using Compute = std::conditional_t<std::is_same_v<A, double>, double, float>;

// ---- Cutting ----

// States how c is cut into blocks and k into steps.
struct Blocks {
  Split rows, columns, depth;
  bool partial;  // says that a block's sums wait in the workspace between steps: c is too narrow
};

// Returns the width of the widest panel of b.
template <class T>
Index widest_block(std::int32_t threads, Index m) {
  using S = Shape<T>;
  return m <= S::few_rows ? std::min(S::block_columns, S::few_columns * threads) : S::block_columns;
}

template <class T>
Blocks cut_blocks(std::int32_t threads, Index m, Index n, Index k, bool narrow_result) {
  const Split depth = split_at_most(k, 1, Shape<T>::max_depth);
  const bool partial = narrow_result && depth.count > 1;
  const Split rows = partial ? split_at_most(m, 1, Shape<T>::partial_rows) : Split{m, 1, 1};
  return {rows, split_at_most(n, Shape<T>::columns, widest_block<T>(threads, m)), depth, partial};
}

// Counts elements of the workspace's parts; each leaves the next on a cache line.
struct Sizes {
  Index b, bias, partial, group;  // `group` is for each thread
  Index total(std::int32_t threads) const { return b + bias + partial + threads * group; }
};

// These bounds grow with every extent; they are not the sizes of the nearly equal parts.
template <class T>
Sizes workspace_sizes(std::int32_t threads, Index m, Index n, Index k, bool narrow_result) {
  using S = Shape<T>;
  const Index columns = std::min((n + S::columns - 1) / S::columns * S::columns, widest_block<T>(threads, m));
  const Index depth = std::min(k, S::max_depth);
  const bool partial = narrow_result && k > S::max_depth;
  const Index slivers = (std::min(m, S::group_rows) + S::max_rows - 1) / S::max_rows;
  const Index by_rows = S::max_rows * Layout<T, true>::per_row;
  const Index by_columns = depth * Layout<T, false>::per_step;
  return {columns * depth, columns,
          partial ? std::min(m, S::partial_rows) * (columns + partial_padding<T>) : 0,
          slivers * std::max(by_rows, by_columns)};
}

// ---- Register tile ----

// Says where a tile of sums starts from and where it goes.
template <class T>
struct TilePlace {
  const T* source;
  Index source_stride;
  T* target;
  Index target_stride;
};

// Computes target = source + alpha * (a sliver of a) * (a sliver of b). All tiles, whole or not, come through
// here.
template <class T, bool by_rows, int rows, int vectors>
void multiply_tile(Index depth, const T* a, const T* b, T alpha, const TilePlace<T> place) {
  using L = Layout<T, by_rows>;
  constexpr int lanes = vector_lanes<T>;
  Vector<T> sum[rows][vectors] = {};
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      __builtin_prefetch(place.target + i * place.target_stride + v * lanes, 1);
  for (Index p = 0; p < depth; ++p) {
    Vector<T> right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      right[v] = load<T>(b + v * lanes);
      __builtin_prefetch(b + v * lanes + 16 * Shape<T>::columns);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] += a[i * L::per_row] * right[v];
    a += L::per_step;
    b += Shape<T>::columns;
  }
  const T* source = place.source;
  T* target = place.target;
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i, target += place.target_stride, source += place.source_stride)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      store<T>(target + v * lanes, load<T>(source + v * lanes) + alpha * sum[i][v]);
}

template <class T>
using TileKernel = void (*)(Index, const T*, const T*, T, TilePlace<T>);

// Makes tile_kernels<T, by_rows>[(rows - 1) * max_vectors + vectors - 1].
template <class T, bool by_rows, std::size_t... i>
constexpr auto make_tile_kernels(std::index_sequence<i...>) {
  constexpr int vectors = Shape<T>::max_vectors;
  return std::array<TileKernel<T>, sizeof...(i)>{
      multiply_tile<T, by_rows, i / vectors + 1, i % vectors + 1>...};
}
template <class T, bool by_rows>
constexpr auto tile_kernels =
    make_tile_kernels<T, by_rows>(std::make_index_sequence<Shape<T>::max_rows * Shape<T>::max_vectors>());

// ---- Blocks ----

// Describes one block of c at one step over k.
template <class T, class A, class C>
struct Block {
  Matrix<C> c;
  Strip<A> a;
  Panel<T> b;
  const T* bias;      // null if there is none, or not at this step
  Matrix<T> partial;  // data is null if the sums between steps live in c
  T* groups;          // has one group of slivers of a for each task
  Index group_elements;
  T alpha;
  bool first, last, accumulate;
};

template <class T, class C>
void to_staging(const C* c, Index stride, const T* bias, Index rows, Index columns, T* staging) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      staging[i * Shape<T>::columns + j] = static_cast<T>(c[i * stride + j]) + (bias ? bias[j] : T{0});
}

template <class T, class C>
void from_staging(const T* staging, Index rows, Index columns, C* c, Index stride) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      c[i * stride + j] = static_cast<C>(staging[i * Shape<T>::columns + j]);
}

// Computes one tile of c from its sliver of a and of b. Operands that the kernel cannot read or write in
// place (partial vectors, other types, a sum of c and bias) go through `staging`.
template <bool by_rows, class T, class A, class C>
void compute_tile(const Block<T, A, C>& block, Index row, Index rows, const T* a, Index sliver) {
  using S = Shape<T>;
  alignas(64) static constexpr T nothing[S::columns] = {};
  alignas(64) T staging[S::max_rows * S::columns];
  const Index column = block.b.split.begin(sliver), columns = block.b.split.size(sliver);
  const Index stride = block.c.row_stride;
  C* c = block.c.data + row * stride + column;
  T* in_place = nullptr;
  if constexpr (std::is_same_v<T, C>)
    if (columns % S::lanes == 0) in_place = c;
  const T* bias = block.bias ? block.bias + column : nullptr;
  T* partial = block.partial.data ? block.partial.data + row * block.partial.row_stride + column : nullptr;

  TilePlace<T> place{bias ? bias : nothing, 0, staging, S::columns};
  if (!block.first && partial) {
    place.source = partial, place.source_stride = block.partial.row_stride;
  } else if (!block.first || block.accumulate) {
    place.source = in_place, place.source_stride = stride;
    if (!in_place || bias) {
      to_staging(c, stride, bias, rows, columns, staging);
      place.source = staging, place.source_stride = S::columns;
    }
  }
  if (!block.last && partial)
    place.target = partial, place.target_stride = block.partial.row_stride;
  else if (in_place)
    place.target = in_place, place.target_stride = stride;

  const Index vectors = (columns + S::lanes - 1) / S::lanes;
  const auto kernel = tile_kernels<T, by_rows>[(rows - 1) * S::max_vectors + vectors - 1];
  kernel(block.b.depth, a, block.b.sliver(sliver), block.alpha, place);
  if (place.target == staging) from_staging(staging, rows, columns, c, stride);
}

// Describes the threads' share of a block: a grid of rectangles.
struct Grid {
  Index rows, columns;
  Index tasks() const { return rows * columns; }
};

// Returns the grid whose largest rectangle is cheapest. Work too small for a thread to be worth waking stays
// on fewer.
template <class T>
Grid choose_grid(std::int32_t threads, Index m, Index n, Index k) {
  constexpr Index multiplies_per_thread = Index{1} << 18;
  constexpr Index packing_columns = 10;  // packing a row of a costs about as much as computing these
  const Index slivers = (n + Shape<T>::columns - 1) / Shape<T>::columns;
  const Index useful = std::clamp<Index>(m * n * k / multiplies_per_thread, 1, threads);
  const auto largest = [](Index extent, Index count) { return (extent + count - 1) / count; };
  Grid best{1, 1};
  Index best_cost = INT64_MAX;
  for (Index rows = 1; rows <= std::min(useful, largest(m, 4)); ++rows) {
    const Grid grid{rows, std::min(useful / rows, slivers)};
    const Index width = largest(slivers, grid.columns) * Shape<T>::columns;
    const Index cost = std::max<Index>(4, largest(m, grid.rows)) * (width + packing_columns);
    if (cost < best_cost) best = grid, best_cost = cost;
  }
  return best;
}

template <bool by_rows, class T, class A, class C>
void compute_share(const Block<T, A, C>& block, const Grid& grid, Index task) {
  using S = Shape<T>;
  const Split rows{block.c.rows, 1, grid.rows}, slivers{block.b.split.count, 1, grid.columns};
  const Index row_task = task % grid.rows, column_task = task / grid.rows;
  const Split groups = split_at_most(rows.size(row_task), 1, S::group_rows);
  for (Index g = 0; g < groups.count; ++g) {
    const Index row = rows.begin(row_task) + groups.begin(g);
    const Strip<A> from{block.a.data + row * block.a.outer_stride, block.a.outer_stride, block.a.depth_stride,
                        block.a.extent - row};
    const Index sliver_elements =
        by_rows ? S::max_rows * Layout<T, true>::per_row : block.b.depth * Layout<T, false>::per_step;
    const Panel<T> a{block.groups + task * block.group_elements,
                     split_at_most(groups.size(g), 1, S::max_rows), block.b.depth, sliver_elements};
    pack_a<by_rows>(from, a);
    const Split inner = split_at_most(slivers.size(column_task), 1, S::inner_columns / S::columns);
    for (Index part = 0; part < inner.count; ++part)
      for (Index s = 0; s < a.split.count; ++s)
        for (Index q = inner.begin(part); q < inner.begin(part + 1); ++q)
          compute_tile<by_rows>(block, row + a.split.begin(s), a.split.size(s), a.sliver(s),
                                slivers.begin(column_task) + q);
  }
}

// ---- The whole ----

template <class A, class B, class C>
struct Call {
  const Workers& workers;
  Matrix<const A> a;
  Matrix<const B> b;
  Matrix<C> c;
  bool accumulate;
  const A* bias;
  Compute<A> alpha;
};

// Holds the parts of the workspace.
template <class T>
struct Buffers {
  T *b, *bias, *partial, *groups;
  Index group_elements;

  Buffers(void* workspace, const Sizes& sizes) {
    b = reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(workspace) + 63) / 64 * 64);
    bias = b + sizes.b;
    partial = bias + sizes.bias;
    groups = partial + sizes.partial;
    group_elements = sizes.group;
  }
};

template <class A, class B, class C, class T>
void multiply_block(const Call<A, B, C>& call, const Blocks& blocks, const Buffers<T>& buffers,
                    Index row_block, Index column_block) {
  using S = Shape<T>;
  const Index row = blocks.rows.begin(row_block), rows = blocks.rows.size(row_block);
  const Index column = blocks.columns.begin(column_block), columns = blocks.columns.size(column_block);
  const Grid grid = choose_grid<T>(call.workers.count, rows, columns, call.a.cols);
  const Split slivers{columns, S::columns, (columns + S::columns - 1) / S::columns};
  Block<T, A, C> block{};
  block.c = {call.c.data + row * call.c.row_stride + column, rows, columns, call.c.row_stride, 1};
  if (blocks.partial)
    block.partial =
        row_major(buffers.partial, rows, columns, slivers.count * S::columns + partial_padding<T>);
  block.groups = buffers.groups, block.group_elements = buffers.group_elements;
  block.alpha = call.alpha, block.accumulate = call.accumulate;
  for (Index step = 0; step < blocks.depth.count; ++step) {
    const Index begin = blocks.depth.begin(step), depth = blocks.depth.size(step);
    block.first = step == 0, block.last = step + 1 == blocks.depth.count;
    block.bias = block.first && call.bias ? buffers.bias : nullptr;
    block.a = {call.a.data + row * call.a.row_stride + begin * call.a.col_stride, call.a.row_stride,
               call.a.col_stride, call.a.rows - row};
    block.b = {buffers.b, slivers, depth, depth * S::columns};
    const Strip<B> b{call.b.data + column * call.b.col_stride + begin * call.b.row_stride, call.b.col_stride,
                     call.b.row_stride, call.b.cols - column};
    parallel(call.workers, grid.tasks(), [&](Index task) {
      pack_b(b, block.b, task, grid.tasks());
      if (block.bias && task == 0)
        for (Index j = 0; j < columns; ++j) buffers.bias[j] = static_cast<T>(call.bias[column + j]);
    });
    parallel(call.workers, grid.tasks(), [&](Index task) {
      if (call.a.col_stride == 1)
        compute_share<true>(block, grid, task);
      else
        compute_share<false>(block, grid, task);
    });
  }
}

template <class A, class B, class C>
void multiply(const Call<A, B, C>& call, void* workspace) {
  using T = Compute<A>;
  if (call.c.rows == 0 || call.c.cols == 0) return;
  const bool narrow_result = !std::is_same_v<T, C>;
  const std::int32_t threads = call.workers.count;
  const Index m = call.c.rows, n = call.c.cols, k = call.a.cols;
  const Blocks blocks = cut_blocks<T>(threads, m, n, k, narrow_result);
  const Buffers<T> buffers(workspace, workspace_sizes<T>(threads, m, n, k, narrow_result));
  for (Index r = 0; r < blocks.rows.count; ++r)
    for (Index q = 0; q < blocks.columns.count; ++q) multiply_block(call, blocks, buffers, r, q);
}

template <class T>
Index workspace_bytes(std::int32_t threads, Index m, Index n, Index k) {
  const bool may_be_narrow = std::is_same_v<T, float>;  // a double product has no narrow result
  const Sizes sizes = workspace_sizes<T>(threads, m, n, k, may_be_narrow);
  return sizes.total(threads) * Index{sizeof(T)} + 64;
}

}  // namespace

std::int64_t gemm_workspace(std::int32_t threads, std::int64_t m, std::int64_t n, std::int64_t k,
                            std::int64_t compute_size) {
  return compute_size == 8 ? workspace_bytes<double>(threads, m, n, k)
                           : workspace_bytes<float>(threads, m, n, k);
}

template <class A, class B, class C>
void gemm(const Workers& workers, Matrix<const A> a, Matrix<const B> b, Matrix<C> c, bool accumulate,
          const A* bias, void* workspace) {
  multiply(Call<A, B, C>{workers, a, b, c, accumulate, bias, 1}, workspace);
}

template <class A, class B, class C>
void gemm_serial(double alpha, Matrix<const A> a, Matrix<const B> b, Matrix<C> c, bool accumulate,
                 void* workspace) {
  const auto run = [](void*, Index tasks, void (*body)(void*, Index), void* context) {
    for (Index task = 0; task < tasks; ++task) body(context, task);
  };
  const Workers alone{nullptr, 1, run};
  multiply(Call<A, B, C>{alone, a, b, c, accumulate, nullptr, static_cast<Compute<A>>(alpha)}, workspace);
}

#define PRUN_GEMM(A, B, C)                                                                                 \
  template void gemm<A, B, C>(const Workers&, Matrix<const A>, Matrix<const B>, Matrix<C>, bool, const A*, \
                              void*);                                                                      \
  template void gemm_serial<A, B, C>(double, Matrix<const A>, Matrix<const B>, Matrix<C>, bool, void*);

PRUN_GEMM(double, double, double)
PRUN_GEMM(float, float, float)
PRUN_GEMM(float, float, bf16)
PRUN_GEMM(float, bf16, float)
PRUN_GEMM(float, bf16, bf16)
PRUN_GEMM(bf16, float, float)
PRUN_GEMM(bf16, float, bf16)
PRUN_GEMM(bf16, bf16, float)
PRUN_GEMM(bf16, bf16, bf16)
PRUN_GEMM(float, float, f16)
PRUN_GEMM(float, f16, float)
PRUN_GEMM(float, f16, f16)
PRUN_GEMM(f16, float, float)
PRUN_GEMM(f16, float, f16)
PRUN_GEMM(f16, f16, float)
PRUN_GEMM(f16, f16, f16)
#undef PRUN_GEMM

}  // namespace prun::cpu::PRUN_ISA
