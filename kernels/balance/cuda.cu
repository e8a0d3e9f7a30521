// Cuts sequences into pieces of some positions: a block counts and adds up a piece, another one the pieces of
// a sequence in their order, and the last one sequences in theirs. So no sum depends on when it is computed.
#include "balance/cuda.hpp"

#include "cuda/route_scores.cuh"

namespace prun::cuda {
namespace {

inline constexpr int threads = 128, warps = threads / warp_size;
inline constexpr std::int64_t piece = 64;  // counts positions

// Holds, for each sequence, whether it is real, its mean square, its experts' loads and mean scores; for each
// piece, its sum of squares, and its experts' choices and sums of scores; for each position, the numbers that
// norm its scores.
struct Room {
  std::int64_t pieces, row;  // `row` counts numbers of a sequence, and of a piece
  double *sequence, *part, *norm;

  __device__ double* of_sequence(std::int64_t s) const { return sequence + s * row; }
  __device__ double* of_piece(std::int64_t s, std::int64_t p) const { return part + (s * pieces + p) * row; }
};

Room room_of(const BalanceShape& s, void* workspace) {
  Room room{ceil_div(s.positions, piece), 2 + 2 * s.routes, static_cast<double*>(workspace), nullptr,
            nullptr};
  room.part = room.sequence + s.sequences * room.row;
  room.norm = room.part + s.sequences * room.pieces * room.row;
  return room;
}

// Computes the logarithm of the sum of exponentials of a position's logits and, where scores are sigmoids,
// their sum.
template <class C>
__device__ __forceinline__ void norms_of(const C* logits, const BalanceShape& s, double* norm, int lane) {
  const int n = static_cast<int>(s.routes);
  const C sum = softmax_scores<C>(logits, n, nullptr, lane);
  C all = 0;
  if (s.sigmoid) {
    for (int e = lane; e < n; e += warp_size) all += sigmoid<C>(logits[e]).value;
    all = warp_fold(all, Add());
  }
  if (lane == 0) norm[0] = static_cast<double>(sum), norm[1] = static_cast<double>(all);
}

// Returns one of the scores that sum to 1.
template <class C>
__device__ __forceinline__ double score_of(C logit, const double* norm, bool by_sigmoid) {
  if (by_sigmoid)
    return static_cast<double>(sigmoid<C>(logit).value) / (norm[1] + static_cast<double>(least_sum<C>));
  return static_cast<double>(exp_of<C>(logit - static_cast<C>(norm[0])));
}

template <class C>
__global__ __launch_bounds__(threads) void pieces_kernel(const C* logits, const std::int32_t* index,
                                                         Room room, BalanceShape s) {
  const std::int64_t sequence = blockIdx.y, first = blockIdx.x * piece;
  const std::int64_t end = first + piece < s.positions ? first + piece : s.positions;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  double* const own = room.of_piece(sequence, blockIdx.x);
  double* const norms = room.norm + 2 * sequence * s.positions;
  const C* const rows = logits ? logits + sequence * s.positions * s.routes : nullptr;
  if (rows)
    for (std::int64_t t = first + threadIdx.x / warp_size; t < end; t += warps)
      norms_of(rows + t * s.routes, s, norms + 2 * t, lane);
  __syncthreads();
  if (threadIdx.x == 0) {
    double squares = 0;
    for (std::int64_t t = first; rows && t < end; ++t) squares += norms[2 * t] * norms[2 * t];
    own[1] = squares;
  }
  const std::int32_t* const chosen = index + sequence * s.positions * s.choices;
  for (std::int64_t e = threadIdx.x; e < s.routes; e += threads) {
    double count = 0, sum = 0;
    for (std::int64_t c = first * s.choices; c < end * s.choices; ++c) count += chosen[c] == e;
    for (std::int64_t t = first; rows && t < end; ++t)
      sum += score_of(rows[t * s.routes + e], norms + 2 * t, s.sigmoid);
    own[2 + e] = count;
    own[2 + s.routes + e] = sum;
  }
}

__global__ __launch_bounds__(threads) void sequences_kernel(const std::int32_t* targets, Room room,
                                                            BalanceShape s) {
  const std::int64_t sequence = blockIdx.x;
  __shared__ int real;
  if (threadIdx.x == 0) real = 0;
  __syncthreads();
  for (std::int64_t t = threadIdx.x; t < s.positions; t += threads)
    if (targets[sequence * s.positions + t] >= 0) real = 1;
  __syncthreads();
  double* const own = room.of_sequence(sequence);
  const auto positions = static_cast<double>(s.positions);
  for (std::int64_t i = 1 + threadIdx.x; i < room.row; i += threads) {
    double sum = 0;
    for (std::int64_t p = 0; p < room.pieces; ++p) sum += room.of_piece(sequence, p)[i];
    own[i] = i == 1 || i >= 2 + s.routes ? sum / positions : sum;
  }
  if (threadIdx.x == 0) own[0] = real;
}

__device__ __forceinline__ double load_of(const BalanceShape& s, double count) {
  return count * static_cast<double>(s.routes) / static_cast<double>(s.positions * s.choices);
}

__global__ __launch_bounds__(threads) void totals_kernel(Room room, const double* scale, double* counts,
                                                         double* losses, BalanceShape s) {
  for (std::int64_t e = threadIdx.x; e < s.routes; e += threads)
    for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence)
      if (const double* const own = room.of_sequence(sequence); own[0] != 0) counts[e] += own[2 + e];
  if (threadIdx.x != 0 || !losses) return;
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    const double* const own = room.of_sequence(sequence);
    if (own[0] == 0) continue;
    double uneven = 0;
    for (std::int64_t e = 0; e < s.routes; ++e) uneven += load_of(s, own[2 + e]) * own[2 + s.routes + e];
    losses[0] += *scale * s.coefficient * uneven;
    losses[1] += *scale * s.z * own[1];
  }
}

template <class C>
__global__ __launch_bounds__(threads) void balance_grad_kernel(const C* logits, Room room,
                                                               const double* scale, C* dlogits,
                                                               BalanceShape s) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= s.sequences * s.positions) return;
  const double* const own = room.of_sequence(row / s.positions);
  const double* const norm = room.norm + 2 * row;
  const C* const l = logits + row * s.routes;
  C* const d = dlogits + row * s.routes;
  const double by_position = *scale / static_cast<double>(s.positions), uneven = by_position * s.coefficient,
               square = 2 * by_position * s.z * norm[0];
  double mean = 0;
  for (std::int64_t e = lane; e < s.routes; e += warp_size)
    mean += load_of(s, own[2 + e]) * score_of(l[e], norm, s.sigmoid);
  mean = warp_fold(mean, Add());
  for (std::int64_t e = lane; e < s.routes; e += warp_size) {
    const double slope = s.sigmoid ? static_cast<double>(sigmoid<C>(l[e]).rest) : 1.0;
    const double from_load =
        uneven * score_of(l[e], norm, s.sigmoid) * (load_of(s, own[2 + e]) - mean) * slope;
    d[e] = own[0] == 0 ? C(0) : static_cast<C>(from_load + square * score_of(l[e], norm, false));
  }
}

template <class C>
__global__ void steer_kernel(const double* counts, const double* keep, C* bias, std::int64_t routes,
                             double rate) {
  if (*keep == 0) return;
  double all = 0;
  for (std::int64_t e = 0; e < routes; ++e) all += counts[e];
  for (std::int64_t e = threadIdx.x; e < routes; e += blockDim.x) {
    const double more = counts[e] * static_cast<double>(routes);
    bias[e] += static_cast<C>(rate * (more < all ? 1.0 : more > all ? -1.0 : 0.0));
  }
}

template <class C>
void look(const C* logits, const std::int32_t* index, const std::int32_t* targets, const BalanceShape& s,
          const Room& room, Stream stream) {
  const dim3 grid(grid_of(room.pieces), grid_of(s.sequences));
  pieces_kernel<C><<<grid, threads, 0, stream>>>(logits, index, room, s);
  check_launch("balance");
  sequences_kernel<<<grid_of(s.sequences), threads, 0, stream>>>(targets, room, s);
  check_launch("balance");
}

}  // namespace

std::int64_t balance_workspace(const BalanceShape& s) {
  const Room room = room_of(s, nullptr);
  return static_cast<std::int64_t>(sizeof(double)) *
         (s.sequences * (1 + room.pieces) * room.row + 2 * s.sequences * s.positions);
}

template <class C>
void balance(const C* logits, const std::int32_t* index, const std::int32_t* targets, const double* scale,
             double* counts, double* losses, const BalanceShape& s, void* workspace, Stream stream) {
  const Room room = room_of(s, workspace);
  look(logits, index, targets, s, room, stream);
  totals_kernel<<<1, threads, 0, stream>>>(room, scale, counts, losses, s);
  check_launch("balance");
}

template <class C>
void balance_grad(const C* logits, const std::int32_t* index, const std::int32_t* targets,
                  const double* scale, C* dlogits, const BalanceShape& s, void* workspace, Stream stream) {
  const Room room = room_of(s, workspace);
  look(logits, index, targets, s, room, stream);
  balance_grad_kernel<C><<<grid_of(ceil_div(s.sequences * s.positions, warps)), threads, 0, stream>>>(
      logits, room, scale, dlogits, s);
  check_launch("balance_grad");
}

template <class C>
void steer(const double* counts, const double* keep, C* bias, std::int64_t routes, double rate,
           Stream stream) {
  steer_kernel<C><<<1, threads, 0, stream>>>(counts, keep, bias, routes, rate);
  check_launch("steer");
}

template void balance(const float*, const std::int32_t*, const std::int32_t*, const double*, double*, double*,
                      const BalanceShape&, void*, Stream);
template void balance(const double*, const std::int32_t*, const std::int32_t*, const double*, double*,
                      double*, const BalanceShape&, void*, Stream);
template void balance_grad(const float*, const std::int32_t*, const std::int32_t*, const double*, float*,
                           const BalanceShape&, void*, Stream);
template void balance_grad(const double*, const std::int32_t*, const std::int32_t*, const double*, double*,
                           const BalanceShape&, void*, Stream);
template void steer(const double*, const double*, float*, std::int64_t, double, Stream);
template void steer(const double*, const double*, double*, std::int64_t, double, Stream);

}  // namespace prun::cuda
