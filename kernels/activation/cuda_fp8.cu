#include "activation/cuda_fp8.hpp"

#include "activation/cuda_gates.cuh"
#include "cuda/fp8_tile.cuh"

namespace prun::cuda {

using namespace fp8;

namespace {

template <class T>
struct GeluOf {
  static constexpr int inputs = 1;  // counts those that lie side by side in a row of x
  __device__ static Pack<T, each> value(const Pack<T, each> (&x)[inputs]) {
    Lanes<float, each> y = unpack(x[0]);
#pragma unroll
    for (int l = 0; l < each; ++l) y[l] = Gelu<T>()(y[l]);
    return pack<T>(y);
  }
  __device__ static void slopes(const Pack<T, each>& dy, Pack<T, each> (&x)[inputs]) {
    const Lanes<float, each> d = unpack(dy), in = unpack(x[0]);
    Lanes<float, each> dx;
#pragma unroll
    for (int l = 0; l < each; ++l) dx[l] = GeluGrad<T>()(d[l], in[l]);
    x[0] = pack<T>(dx);
  }
};

template <class T, class Gate>
struct GatedOf {
  static constexpr int inputs = 2;
  __device__ static Pack<T, each> value(const Pack<T, each> (&x)[inputs]) {
    const Lanes<float, each> gate = unpack(x[0]), up = unpack(x[1]);
    Lanes<float, each> y;
#pragma unroll
    for (int l = 0; l < each; ++l) y[l] = Gate::value(gate[l]) * up[l];
    return pack<T>(y);
  }
  __device__ static void slopes(const Pack<T, each>& dy, Pack<T, each> (&x)[inputs]) {
    const Lanes<float, each> gate = unpack(x[0]), up = unpack(x[1]), d = unpack(dy);
    Lanes<float, each> dgate, dup;
#pragma unroll
    for (int l = 0; l < each; ++l) {
      const Gated<float> by = Gate::of(gate[l]);
      dgate[l] = d[l] * up[l] * by.slope;
      dup[l] = d[l] * by.value;
    }
    x[0] = pack<T>(dgate), x[1] = pack<T>(dup);
  }
};

// Loads a lane's part of each input's tile.
template <class T, class Of>
__device__ __forceinline__ void load_inputs(const Tile& t, const T* x, Part<T> (&inputs)[Of::inputs]) {
#pragma unroll
  for (int n = 0; n < Of::inputs; ++n)
    inputs[n].template load<true>(x + t.row() * Of::inputs * t.columns + n * t.columns + t.column(),
                                  Of::inputs * t.columns, t.there());
}

template <class T>
__device__ __forceinline__ void store_part(const Part<T>& part, T* to, std::int64_t stride, bool there) {
  if (!there) return;
#pragma unroll
  for (int i = 0; i < tall; ++i) store_pack(to + i * stride, part.row[i]);
}

template <class Of, bool squares, class T>
__global__ __launch_bounds__(fp8_threads) void value_kernel(const T* x, T* y, std::int64_t rows,
                                                            std::int64_t width, Fp8Factor by_rows,
                                                            Fp8Factor by_squares) {
  const Tile t{rows, width};
  Part<T> inputs[Of::inputs], part;
  load_inputs<T, Of>(t, x, inputs);
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    Pack<T, each> row[Of::inputs];
#pragma unroll
    for (int n = 0; n < Of::inputs; ++n) row[n] = inputs[n].row[i];
    part.row[i] = Of::value(row);
  }
  store_part(part, y + t.row() * width + t.column(), width, t.there());
  if constexpr (squares) {
    __shared__ std::uint32_t shared[warps];
    __shared__ uint4 tile[128 * warps];
    write_rows_and_squares(t, part, by_rows, by_squares, shared, tile);
  } else {
    std::uint32_t bits[tall], words[tall];
    find_scales<Blocks::rows>(part, bits, nullptr);
    find_codes<Blocks::rows>(part, bits, words);
    write_rows(t, words, by_rows.codes);
    write_scales<Blocks::rows, false>(t, bits, by_rows.scales);
  }
}

template <class Of, class T>
__global__ __launch_bounds__(fp8_threads) void slopes_kernel(const T* dy, const T* x, T* dx,
                                                             std::int64_t rows, std::int64_t width,
                                                             Fp8Factor by_rows, Fp8Factor by_columns) {
  __shared__ std::uint32_t shared[warps * 128];
  __shared__ uint4 tile[128 * warps];
  const Tile t{rows, width};
  Part<T> inputs[Of::inputs];
  load_inputs<T, Of>(t, x, inputs);
  {
    Part<T> arrived;
    arrived.template load<true>(dy + t.row() * width + t.column(), width, t.there());
#pragma unroll
    for (int i = 0; i < tall; ++i) {
      Pack<T, each> row[Of::inputs];
#pragma unroll
      for (int n = 0; n < Of::inputs; ++n) row[n] = inputs[n].row[i];
      Of::slopes(arrived.row[i], row);
#pragma unroll
      for (int n = 0; n < Of::inputs; ++n) inputs[n].row[i] = row[n];
    }
  }
#pragma unroll
  for (int n = 0; n < Of::inputs; ++n) {
    Tile of{rows, Of::inputs * width};
    of.across += n * (width / fp8_block);
    store_part(inputs[n], dx + of.row() * of.columns + of.column(), of.columns, t.there());
    write_both(of, inputs[n], by_rows, by_columns, shared, tile);
  }
}

void check_width(Activation kind, std::int64_t width, std::initializer_list<const void*> pointers) {
  PRUN_CHECK(kind == Activation::gelu || width % fp8_block == 0, "a gated width of ", width);
  PRUN_CHECK(cuda::aligned(pointers), "pointers that are not aligned");
}

template <class T, class Launch>
void with_activation(Activation kind, Launch launch) {
  switch (kind) {
    case Activation::gelu: return launch.template operator()<GeluOf<T>>();
    case Activation::swiglu: return launch.template operator()<GatedOf<T, SiluGate<T>>>();
    case Activation::geglu: return launch.template operator()<GatedOf<T, GeluGate<T>>>();
  }
}

}  // namespace

template <class T>
void activation_to_fp8(Activation kind, const T* x, T* y, std::int64_t rows, std::int64_t width,
                       const Fp8Factor& by_rows, const std::optional<Fp8Factor>& by_squares, Stream stream) {
  check_width(kind, width, {x, y});
  const Fp8Factor second = by_squares.value_or(by_rows);
  const dim3 tiles = tiles_of(rows, width, {by_rows, second});
  if (rows == 0) return;
  with_activation<T>(kind, [&]<class Of>() {
    if (by_squares) {
      value_kernel<Of, true, T><<<tiles, fp8_threads, 0, stream>>>(x, y, rows, width, by_rows, second);
    } else {
      value_kernel<Of, false, T><<<tiles, fp8_threads, 0, stream>>>(x, y, rows, width, by_rows, second);
    }
  });
  check_launch("activation_to_fp8");
}

template <class T>
void activation_grad_to_fp8(Activation kind, const T* dy, const T* x, T* dx, std::int64_t rows,
                            std::int64_t width, const Fp8Factor& by_rows, const Fp8Factor& by_columns,
                            Stream stream) {
  check_width(kind, width, {dy, x, dx});
  const dim3 tiles = tiles_of(rows, width, {by_rows, by_columns});
  if (rows == 0) return;
  with_activation<T>(kind, [&]<class Of>() {
    slopes_kernel<Of><<<tiles, fp8_threads, 0, stream>>>(dy, x, dx, rows, width, by_rows, by_columns);
  });
  check_launch("activation_grad_to_fp8");
}

#define PRUN_FP8_ACTIVATION(T)                                                                               \
  template void activation_to_fp8<T>(Activation, const T*, T*, std::int64_t, std::int64_t, const Fp8Factor&, \
                                     const std::optional<Fp8Factor>&, Stream);                               \
  template void activation_grad_to_fp8<T>(Activation, const T*, const T*, T*, std::int64_t, std::int64_t,    \
                                          const Fp8Factor&, const Fp8Factor&, Stream)
PRUN_FP8_ACTIVATION(bf16);
PRUN_FP8_ACTIVATION(f16);

}  // namespace prun::cuda
