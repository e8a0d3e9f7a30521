#include "experts/cuda.hpp"

#include "cuda/grouped.cuh"
#include "cuda/math.cuh"
#include "experts/cuda_grouped.hpp"

namespace prun::cuda {
namespace {

inline constexpr int warp_size = 32;

// ---------------------------------------------------------------- activations behind biases

// These activations of experts have biases in front of them, and may be bounded
// (kernels/experts/experts.hpp).

// Holds an expert's operands of the activation, as they are bounded, and what it gives of them.
template <class T>
struct BiasedGate {
  using C = Compute<T>;
  C gate, value, act, of_gate, of_value;  // of: slopes by the operands before they were bounded

  __device__ BiasedGate(C g, C u, C limit, C alpha) {
    if (limit == 0) {
      const Sigmoid<C> s = sigmoid<T>(g);
      gate = g, value = u;
      of_value = g * s.value;
      act = of_value * u;
      of_gate = u * s.value * (C(1) + g * s.rest);
      return;
    }
    gate = g > limit ? limit : g;
    value = u > limit ? limit : u < -limit ? -limit : u;
    const Sigmoid<C> s = sigmoid<T>(alpha * gate);
    const C gated = gate * s.value;
    act = (value + C(1)) * gated;
    of_gate = g > limit ? C(0) : (value + C(1)) * (s.value * (C(1) + alpha * gate * s.rest));
    of_value = u != value ? C(0) : gated;
  }
};

// Says where a row's expert is found, and what its activations have.
template <class T>
struct BiasedRows {
  const T* bias;               // [experts, 2, ffn]
  const std::int32_t* index;   // by choice
  const std::int32_t* choice;  // by row
  std::int64_t first_expert, ffn;
  Compute<T> limit, alpha;

  __device__ const T* of(std::int64_t row) const {
    return bias + (index[choice[row]] - first_expert) * 2 * ffn;
  }
  __device__ BiasedGate<T> gate(const T* up, std::int64_t row, std::int64_t column) const {
    const T *const own = up + row * 2 * ffn + column, *const added = of(row) + column;
    return {load(own) + load(added), load(own + ffn) + load(added + ffn), limit, alpha};
  }
};

// Rows behind the last are left alone.
template <class T>
__global__ void biased_activate_kernel(const T* up, T* act, const std::int32_t* rows, BiasedRows<T> biased) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < *rows * biased.ffn) store(act + i, biased.gate(up, i / biased.ffn, i % biased.ffn).act);
}

// Turns a row's operands into their own gradients, and weights its activations; `dweight` is null where it is
// not needed.
template <class T>
__global__ __launch_bounds__(128) void biased_turn_back_kernel(T* up, T* act, const T* dact,
                                                               const Compute<T>* weight, Compute<T>* dweight,
                                                               const std::int32_t* rows,
                                                               BiasedRows<T> biased) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const std::int64_t row = blockIdx.x, ffn = biased.ffn;
  if (row >= *rows) return;
  const std::int32_t choice = biased.choice[row];
  const C w = weight[choice];
  C sum = 0;
  for (std::int64_t i = threadIdx.x; i < ffn; i += blockDim.x) {
    const BiasedGate<T> at = biased.gate(up, row, i);
    const C back = load(dact + row * ffn + i);
    sum += at.act * back;
    store(up + row * 2 * ffn + i, back * w * at.of_gate);
    store(up + (row * 2 + 1) * ffn + i, back * w * at.of_value);
    store(act + row * ffn + i, at.act * w);
  }
  if (!dweight) return;
  sum = block_fold(sum, C(0), Add(), scratch);
  if (threadIdx.x == 0) dweight[choice] = sum;
}

// A thread adds up a column of an expert's rows, in their order.
template <class T, class S>
__global__ void biased_sums_kernel(const T* gradients, const std::int32_t* begin, std::int64_t width,
                                   S* dbias, bool begins) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                     expert = blockIdx.y;
  if (column >= width) return;
  S* const to = dbias + expert * width + column;
  Compute<S> sum = begins ? Compute<S>(0) : load(to);
  for (std::int64_t row = begin[expert]; row < begin[expert + 1]; ++row)
    sum += static_cast<Compute<S>>(load(gradients + row * width + column));
  store(to, sum);
}

// ---------------------------------------------------------------- rows in the order of experts

// Describes rows: where each expert's begin, the position and the choice of each row, and the row of each
// choice.
struct Rows {
  std::int32_t *begin, *position, *choice, *row;
};

// A block puts the choices of one expert in their order, behind those of experts in front of it. A warp
// counts both among as many neighbours as others do, and then places its own. The first block also marks
// choices of experts that belong to other ranks.
inline constexpr int placing_warps = 32;

__global__ __launch_bounds__(placing_warps* warp_size) void place_kernel(const std::int32_t* index,
                                                                         std::int32_t choices,
                                                                         std::int32_t each,
                                                                         std::int64_t first_expert,
                                                                         Rows rows) {
  __shared__ int in_front[placing_warps], own[placing_warps];  // by warp
  const std::int64_t expert = first_expert + blockIdx.x, experts = gridDim.x;
  const int lane = static_cast<int>(threadIdx.x) % warp_size,
            warp = static_cast<int>(threadIdx.x) / warp_size;
  constexpr int turn = placing_warps * warp_size;
  const int neighbours = (choices + turn - 1) / turn * warp_size, begin = warp * neighbours,
            end = begin + neighbours < choices ? begin + neighbours : choices;
  int before = 0, count = 0;
#pragma unroll 8
  for (int c = begin + lane; c < end; c += warp_size) {
    const std::int32_t e = index[c];
    before += e >= first_expert && e < expert;
    count += e == expert;
    if (blockIdx.x == 0 && (e < first_expert || e >= first_expert + experts)) rows.row[c] = -1;
  }
  before = warp_fold(before, Add()), count = warp_fold(count, Add());
  if (lane == 0) in_front[warp] = before, own[warp] = count;
  __syncthreads();
  int first = 0, all = 0, row = 0;
  for (int w = 0; w < placing_warps; ++w) {
    first += in_front[w], all += own[w];
    row += w < warp ? own[w] : 0;
  }
  row += first;
  if (threadIdx.x == 0) rows.begin[blockIdx.x] = first;
  if (threadIdx.x == 0 && blockIdx.x + 1 == gridDim.x) rows.begin[experts] = first + all;
#pragma unroll 8
  for (int at = begin; at < end; at += warp_size) {
    const int c = at + lane;
    const bool is_own = c < end && index[c] == expert;
    const unsigned these = __ballot_sync(0xffffffffu, is_own);
    if (is_own) {
      const int to = row + __popc(these & ((1u << lane) - 1));
      rows.position[to] = c / each, rows.choice[to] = c, rows.row[c] = to;
    }
    row += __popc(these);
  }
}

// ---------------------------------------------------------------- between the products

// Returns silu(gate) * value, rounded to its type.
template <class T, int N>
__device__ __forceinline__ Pack<T, N> activated(const Lanes<Compute<T>, N>& gate,
                                                const Lanes<Compute<T>, N>& value) {
  Lanes<Compute<T>, N> act;
#pragma unroll
  for (int e = 0; e < N; ++e) act[e] = gate[e] * (sigmoid<T>(gate[e]).value * value[e]);
  return pack<T>(act);
}

// Computes act[r] = silu(up[r, 0]) * up[r, 1]; rows behind the last are left alone.
template <int N, class T>
__global__ void activate_kernel(const T* up, T* act, const std::int32_t* rows, std::int64_t ffn) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= *rows * ffn) return;
  const std::int64_t row = i / ffn, at = row * 2 * ffn + i % ffn;
  store_pack(act + i, activated<T>(load_lanes<N>(up + at), load_lanes<N>(up + at + ffn)));
}

// Points into a row: at the activation's operands, its gradient, their gradients, and the activation.
template <class T>
struct TurnedBack {
  const T *gate, *value, *dact;
  T *dgate, *dvalue, *act;

  __device__ TurnedBack at(std::int64_t i) const {
    return {gate + i, value + i, dact + i, dgate + i, dvalue + i, act + i};
  }
};

// Turns N values of a row back: to gradients, and to activations that are weighted. Returns its part of the
// weight's gradient. Gradients may lie in the place of their operands.
template <int N, class T>
__device__ __forceinline__ Compute<T> turn_back_at(const TurnedBack<T>& own, Compute<T> weight) {
  using C = Compute<T>;
  const Lanes<C, N> back = load_lanes<N>(own.dact);
  Lanes<C, N> gate = load_lanes<N>(own.gate), value = load_lanes<N>(own.value);
  Lanes<C, N> a = unpack(activated<T>(gate, value));
  C sum = 0;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const Sigmoid<C> s = sigmoid<T>(gate[e]);
    const C d = back[e] * weight, of_value = d * (gate[e] * s.value);
    sum += a[e] * back[e];
    gate[e] = d * value[e] * (s.value * (C(1) + gate[e] * s.rest));
    value[e] = of_value;
    a[e] *= weight;
  }
  store_lanes(own.dgate, gate);
  store_lanes(own.dvalue, value);
  store_lanes(own.act, a);
  return sum;
}

// Computes the gradients of the activations' operands, and the weighted activations. A block takes a row;
// `dweight` is null where it is not needed.
template <int N, class T>
__global__ __launch_bounds__(128) void turn_back_kernel(const T* up, T* dup, T* act, const T* dact,
                                                        const Compute<T>* weight, Compute<T>* dweight,
                                                        const std::int32_t* choice, const std::int32_t* rows,
                                                        std::int64_t ffn) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const std::int64_t row = blockIdx.x;
  if (row >= *rows) return;
  const C w = weight[choice[row]];
  const std::int64_t first = row * 2 * ffn;
  const TurnedBack<T> own{up + first,  up + first + ffn,  dact + row * ffn,
                          dup + first, dup + first + ffn, act + row * ffn};
  C sum = 0;
  for (std::int64_t i = threadIdx.x * N; i < ffn; i += blockDim.x * N) sum += turn_back_at<N>(own.at(i), w);
  if (!dweight) return;
  sum = block_fold(sum, C(0), Add(), scratch);
  if (threadIdx.x == 0) dweight[choice[row]] = sum;
}

template <class C>
__global__ void no_weight_gradients_kernel(const std::int32_t* row, std::int64_t choices, C* dweight) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c < choices && row[c] < 0) dweight[c] = 0;
}

// Sets to[row] = x[its position]; rows behind the last are left alone.
template <int N, class T>
__global__ void gather_kernel(const T* x, const std::int32_t* position, const std::int32_t* rows, T* to,
                              std::int64_t hidden) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row < *rows && column < hidden)
    store_pack(to + row * hidden + column, load_pack<N>(x + position[row] * hidden + column));
}

// Sets to[position] = the sum of its choices' rows, times their weights where there are any.
template <int N, class T>
__global__ void combine_kernel(const T* out, const std::int32_t* row, const Compute<T>* weight, T* to,
                               std::int64_t positions, std::int64_t choices, std::int64_t hidden) {
  using C = Compute<T>;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (position >= positions || column >= hidden) return;
  Lanes<C, N> sum;
#pragma unroll
  for (int e = 0; e < N; ++e) sum[e] = 0;
  for (std::int64_t c = position * choices; c < (position + 1) * choices; ++c) {
    if (row[c] < 0) continue;
    const C w = weight ? weight[c] : C(1);
    const Lanes<C, N> one = load_lanes<N>(out + row[c] * hidden + column);
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] += w * one[e];
  }
  store_lanes(to + position * hidden + column, sum);
}

// ---------------------------------------------------------------- the host's side

template <class T>
struct Buffers {
  Rows rows;
  T *up, *act, *out, *dact;
};

std::int64_t round_up(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Calls take(bytes) for each piece in order.
template <class Take>
void cut(const ExpertsShape& s, std::int64_t size, bool gradients, bool kept, const Take& take) {
  take(round_up((s.experts + 1) * 4));
  for (int i = 0; i < 3; ++i) take(round_up(s.rows() * 4));
  take(gradients || !kept ? round_up(s.rows() * 2 * s.ffn * size) : 0);
  take(round_up(s.rows() * s.ffn * size));
  take(round_up(s.rows() * s.hidden * size));
  if (gradients) take(round_up(s.rows() * s.ffn * size));
}

template <class T>
Buffers<T> buffers_in(const ExpertsShape& s, bool gradients, bool kept, void* workspace) {
  void* piece[8] = {};
  int count = 0;
  char* next = static_cast<char*>(workspace);
  cut(s, sizeof(T), gradients, kept, [&](std::int64_t bytes) {
    piece[count++] = next;
    next += bytes;
  });
  const auto number = [&](int i) { return static_cast<std::int32_t*>(piece[i]); };
  return {{number(0), number(1), number(2), number(3)},
          static_cast<T*>(piece[4]),
          static_cast<T*>(piece[5]),
          static_cast<T*>(piece[6]),
          static_cast<T*>(piece[7])};
}

template <class T>
class ExpertRows {
 public:
  using C = Compute<T>;

  ExpertRows(const ExpertsInputs<T>& in, const ExpertsShape& shape, bool gradients, void* workspace,
             Stream stream)
      : in_(in), s_(shape), at_(buffers_in<T>(shape, gradients, in.kept, workspace)), stream_(stream) {}

  void sort() const {
    place_kernel<<<grid_of(s_.experts), placing_warps * warp_size, 0, stream_>>>(
        in_.index, static_cast<std::int32_t>(s_.rows()), static_cast<std::int32_t>(s_.choices),
        s_.first_expert, at_.rows);
    check_launch("experts");
  }

  // Computes the activations' operands.
  void rise() const { product<false>(in_.x, at_.rows.position, in_.up, risen(), 2 * s_.ffn, s_.hidden); }

  void activate() const {
    if (in_.up_bias) return activate_biased();
    with_chunk<T>(s_.ffn, {risen(), at_.act}, [&]<int N>(std::integral_constant<int, N>) {
      const unsigned blocks = grid_of(ceil_div(s_.rows() * s_.ffn, 256 * N));
      activate_kernel<N><<<blocks, 256, 0, stream_>>>(risen(), at_.act, last(), s_.ffn);
    });
    check_launch("experts");
  }

  void write_results(T* y) const {
    product<false>(at_.act, nullptr, in_.down, at_.out, s_.hidden, s_.ffn);
    combine(in_.weight, y);
  }

  void turn_back(const T* dy, C* dweight) const {
    product<true>(dy, at_.rows.position, in_.down, at_.dact, s_.ffn, s_.hidden);
    if (in_.up_bias) return turn_biased_back(dweight);
    with_chunk<T>(s_.ffn, {risen(), at_.up, at_.act, at_.dact}, [&]<int N>(std::integral_constant<int, N>) {
      turn_back_kernel<N><<<grid_of(s_.rows()), 128, 0, stream_>>>(
          risen(), at_.up, at_.act, at_.dact, in_.weight, dweight, at_.rows.choice, last(), s_.ffn);
    });
    clear_others(dweight);
  }

  void write_input_gradients(T* dx) const {
    product<true>(at_.up, nullptr, in_.up, at_.out, s_.hidden, 2 * s_.ffn);
    combine(nullptr, dx);
  }

  // Neither product's results are needed here, either no more or not yet: x takes their place in the order of
  // rows.
  template <class S>
  void add_sums(const T* dy, const Sum<S>& dup, const Sum<S>& ddown) const {
    if (dup.data) {
      gather();
      sums(at_.up, nullptr, at_.out, dup, 2 * s_.ffn, s_.hidden);
    }
    if (ddown.data) sums(dy, at_.rows.position, at_.act, ddown, s_.hidden, s_.ffn);
  }
  template <class S>
  void add_bias_sums(const Sum<S>& dbias) const {
    if (!dbias.data) return;
    const std::int64_t width = 2 * s_.ffn;
    const dim3 grid(grid_of(ceil_div(width, 128)), grid_of(s_.experts));
    biased_sums_kernel<T, S>
        <<<grid, 128, 0, stream_>>>(at_.up, at_.rows.begin, width, dbias.data, dbias.begins);
    check_launch("biased_experts_weight_grad");
  }

 private:
  BiasedRows<T> biased() const {
    return {in_.up_bias,
            in_.index,
            at_.rows.choice,
            s_.first_expert,
            s_.ffn,
            static_cast<C>(in_.limit),
            static_cast<C>(in_.alpha)};
  }
  void activate_biased() const {
    biased_activate_kernel<T>
        <<<grid_of(ceil_div(s_.rows() * s_.ffn, 256)), 256, 0, stream_>>>(at_.up, at_.act, last(), biased());
    check_launch("biased_experts");
  }
  void turn_biased_back(C* dweight) const {
    biased_turn_back_kernel<T><<<grid_of(s_.rows()), 128, 0, stream_>>>(at_.up, at_.act, at_.dact, in_.weight,
                                                                        dweight, last(), biased());
    clear_others(dweight);
  }
  // Choices of experts on other ranks have no gradient here.
  void clear_others(C* dweight) const {
    if (dweight)
      no_weight_gradients_kernel<C>
          <<<grid_of(ceil_div(s_.rows(), 256)), 256, 0, stream_>>>(at_.rows.row, s_.rows(), dweight);
    check_launch("experts_grad");
  }
  T* risen() const { return in_.kept ? in_.kept : at_.up; }
  const std::int32_t* last() const { return at_.rows.begin + s_.experts; }
  RowGroups groups() const { return {at_.rows.begin, s_.experts, s_.rows()}; }

  template <bool turned>
  void product(const T* from, const std::int32_t* map, const T* weight, T* to, std::int64_t n,
               std::int64_t k) const {
    if constexpr (std::is_same_v<T, bf16>) {
      const GroupedProduct call{{from, map}, weight, to, n, k};
      if (tensor_grouped_takes(call, groups()))
        return tensor_grouped<turned>(call, groups(), grouped_form(), stream_);
    }
    any_product<turned>(from, map, weight, to, n, k);
  }

  template <class S>
  void sums(const T* left, const std::int32_t* left_map, const T* right, const Sum<S>& sum, std::int64_t m,
            std::int64_t n) const {
    if constexpr (std::is_same_v<T, bf16>) {
      const GroupedSums<S> call{{left, left_map}, right, sum, m, n};
      if (tensor_grouped_takes(call, groups()))
        return tensor_grouped(call, groups(), grouped_form(), stream_);
    }
    any_sums(left, left_map, right, sum, m, n);
  }

  // Launches as many tiles as there can be: each expert may have one that is not full.
  template <bool turned>
  void any_product(const T* from, const std::int32_t* map, const T* weight, T* to, std::int64_t n,
                   std::int64_t k) const {
    const dim3 grid(grid_of(ceil_div(s_.rows(), grouped::tile) + s_.experts),
                    grid_of(ceil_div(n, grouped::tile)));
    const int experts = static_cast<int>(s_.experts);
    grouped_rows_kernel<T, T, turned>
        <<<grid, grouped::threads, 0, stream_>>>(from, map, weight, to, at_.rows.begin, experts, n, k);
    check_launch("grouped product");
  }

  template <class S>
  void any_sums(const T* left, const std::int32_t* left_map, const T* right, const Sum<S>& sum,
                std::int64_t m, std::int64_t n) const {
    const dim3 grid(grid_of(ceil_div(m, grouped::tile)), grid_of(ceil_div(n, grouped::tile)),
                    grid_of(s_.experts));
    grouped_sums_kernel<T, S><<<grid, grouped::threads, 0, stream_>>>(left, left_map, right, sum.data,
                                                                      sum.begins, at_.rows.begin, m, n);
    check_launch("grouped sums");
  }

  void gather() const {
    with_chunk<T>(s_.hidden, {in_.x, at_.out}, [&]<int N>(std::integral_constant<int, N>) {
      const RowGrid at(s_.rows(), s_.hidden / N);
      gather_kernel<N>
          <<<at.grid, at.block, 0, stream_>>>(in_.x, at_.rows.position, last(), at_.out, s_.hidden);
    });
    check_launch("experts_grad");
  }

  void combine(const C* weight, T* to) const {
    with_chunk<T>(s_.hidden, {at_.out, to}, [&]<int N>(std::integral_constant<int, N>) {
      const RowGrid at(s_.positions, s_.hidden / N);
      combine_kernel<N><<<at.grid, at.block, 0, stream_>>>(at_.out, at_.rows.row, weight, to, s_.positions,
                                                           s_.choices, s_.hidden);
    });
    check_launch("experts");
  }

  const ExpertsInputs<T>& in_;
  const ExpertsShape& s_;
  const Buffers<T> at_;
  const Stream stream_;
};

}  // namespace

std::int64_t experts_workspace(const ExpertsShape& shape, std::int64_t size_of_value, bool gradients,
                               bool kept) {
  std::int64_t all = 0;
  cut(shape, size_of_value, gradients, kept, [&](std::int64_t bytes) { all += bytes; });
  return all;
}

template <class T>
void experts(const ExpertsInputs<T>& in, T* y, const ExpertsShape& shape, void* workspace, Stream stream) {
  const ExpertRows<T> rows(in, shape, false, workspace, stream);
  rows.sort();
  rows.rise();
  rows.activate();
  rows.write_results(y);
}

template <class T, class S>
void experts_grads(const ExpertsInputs<T>& in, const T* dy, const ExpertsGradients<T, S>& out,
                   const ExpertsShape& shape, void* workspace, Stream stream) {
  const ExpertRows<T> rows(in, shape, true, workspace, stream);
  rows.sort();
  if (!in.kept) rows.rise();
  rows.turn_back(dy, out.dweight);
  rows.add_sums(dy, out.dup, out.ddown);
  rows.add_bias_sums(out.dup_bias);
  if (out.dx) rows.write_input_gradients(out.dx);
}

#define PRUN_EXPERTS(T)                                                                                  \
  template void experts(const ExpertsInputs<T>&, T*, const ExpertsShape&, void*, Stream);                \
  template void experts_grads(const ExpertsInputs<T>&, const T*, const ExpertsGradients<T, Compute<T>>&, \
                              const ExpertsShape&, void*, Stream);
PRUN_EXPERTS(double)
PRUN_EXPERTS(float)
PRUN_EXPERTS(bf16)
PRUN_EXPERTS(f16)
#undef PRUN_EXPERTS
template void experts_grads(const ExpertsInputs<bf16>&, const bf16*, const ExpertsGradients<bf16, bf16>&,
                            const ExpertsShape&, void*, Stream);

}  // namespace prun::cuda
