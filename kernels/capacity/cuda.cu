// A block takes an expert of a sequence, and lists its choices where there are too many. It finds the last
// choice that is kept bit by bit, by counting how many do not come after a place: counts are whole numbers,
// so that the order in which they are added does not matter.
#include "capacity/cuda.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

inline constexpr int threads = 1024;

// Orders weights as numbers in fp32, and NaNs behind or before all of them. Both zeros are alike.
__device__ __forceinline__ std::uint32_t rank_of(float weight) {
  const std::uint32_t bits = __float_as_uint(weight + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Is a place in the order: first by weight, then by the number of choices behind it in the order of
// positions.
struct Place {
  std::uint32_t weight, early;

  __device__ bool is_not_before(const Place& other) const {
    return weight > other.weight || (weight == other.weight && early >= other.early);
  }
};

// Holds the choices of a sequence, and those of one expert among them, once they are listed.
template <class C>
struct Own {
  const std::int32_t* index;
  const C* weight;
  const std::int32_t* positions;
  CapacityShape s;
  int expert;
  std::int32_t* list;
  int listed;

  __device__ std::int64_t all() const { return s.positions * s.choices; }
  __device__ Place place(std::int64_t choice) const {
    const std::int64_t number =
        positions ? positions[choice / s.choices] * s.choices + choice % s.choices : choice;
    return {weight ? rank_of(static_cast<float>(weight[choice])) : 0u,
            static_cast<std::uint32_t>(all() - 1 - number)};
  }
  // These call body(choice) for this thread's choices, among all and among those that are listed.
  template <class Body>
  __device__ void find(const Body& body) const {
    for (std::int64_t c = threadIdx.x; c < all(); c += threads)
      if (index[c] == expert) body(c);
  }
  template <class Body>
  __device__ void each(const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < listed; i += threads) body(list[i]);
  }
  // Counts the choices that are not before `least`, for all threads.
  __device__ std::int64_t count(const Place& least, int* scratch) const {
    int own = 0;
    each([&](std::int64_t c) { own += place(c).is_not_before(least); });
    own = block_fold(own, 0, Add(), scratch);
    __syncthreads();
    return own;
  }
};

// Sets `listed`, returns how many choices are of experts before this one, and gives this thread's own number.
template <class C>
__device__ std::int64_t count_own(Own<C>& own, int& mine, int* scratch) {
  int before = 0;
  mine = 0;
  for (std::int64_t c = threadIdx.x; c < own.all(); c += threads) {
    mine += own.index[c] == own.expert;
    before += own.index[c] < own.expert;
  }
  own.listed = block_fold(mine, 0, Add(), scratch);
  __syncthreads();
  before = block_fold(before, 0, Add(), scratch);
  __syncthreads();
  return before;
}

// Lists the expert's choices, one thread's after the other's.
template <class C>
__device__ void list_own(const Own<C>& own, int mine, int* ends) {
  const int thread = static_cast<int>(threadIdx.x);
  ends[thread] = mine;
  __syncthreads();
  for (int distance = 1; distance < threads; distance *= 2) {
    const int more = thread >= distance ? ends[thread - distance] : 0;
    __syncthreads();
    ends[thread] += more;
    __syncthreads();
  }
  int next = ends[thread] - mine;
  own.find([&](std::int64_t c) { own.list[next++] = static_cast<std::int32_t>(c); });
  __syncthreads();
}

// Finds the last place that is kept: `most` choices are before it or there.
template <class C>
__device__ Place last_kept(const Own<C>& own, int* scratch) {
  Place least{0, 0};
  std::int64_t count = own.count(least, scratch);
  const auto raise_to = [&](const Place& place) {
    const std::int64_t there = own.count(place, scratch);
    if (there >= own.s.most) least = place, count = there;
  };
  for (int bit = 31; own.weight && bit >= 0 && count > own.s.most; --bit)
    raise_to({least.weight | 1u << bit, 0});
  for (int bit = 31; bit >= 0 && count > own.s.most; --bit)
    if (own.all() > std::int64_t{1} << bit) raise_to({least.weight, least.early | 1u << bit});
  return least;
}

template <class C>
__global__ __launch_bounds__(threads) void cap_kernel(const std::int32_t* index, const C* weight,
                                                      const std::int32_t* positions, std::int32_t* kept,
                                                      CapacityShape s, std::int32_t* lists) {
  __shared__ int scratch[32], ends[threads];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * s.positions * s.choices;
  const int expert = static_cast<int>(blockIdx.x);
  Own<C> own{index + first, weight ? weight + first : nullptr, positions, s, expert, nullptr, 0};
  int mine;
  const std::int64_t before = count_own(own, mine, scratch);
  if (s.most == 0 || own.listed <= s.most) {
    own.find([&](std::int64_t c) { kept[first + c] = expert; });
    return;
  }
  own.list = lists + first + before;
  list_own(own, mine, ends);
  const Place least = last_kept(own, scratch);
  own.each([&](std::int64_t c) { kept[first + c] = own.place(c).is_not_before(least) ? expert : -1; });
}

// One block counts all: they are few.
__global__ __launch_bounds__(threads) void count_dropped_kernel(const std::int32_t* index,
                                                                const std::int32_t* targets, double* dropped,
                                                                CapacityShape s) {
  __shared__ int scratch[32];
  const std::int64_t each = s.positions * s.choices;
  std::int64_t count = 0;
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    int real = 0, own = 0;
    for (std::int64_t t = threadIdx.x; t < s.positions; t += threads)
      real |= targets[sequence * s.positions + t] >= 0;
    for (std::int64_t c = threadIdx.x; c < each; c += threads) own += index[sequence * each + c] < 0;
    real = block_fold(real, 0, Add(), scratch);
    __syncthreads();
    own = block_fold(own, 0, Add(), scratch);
    __syncthreads();
    if (real > 0) count += own;
  }
  if (threadIdx.x == 0) *dropped += static_cast<double>(count);
}

}  // namespace

std::int64_t cap_workspace(const CapacityShape& s) {
  return s.most == 0 ? 0 : s.sequences * s.positions * s.choices * std::int64_t{sizeof(std::int32_t)};
}

template <class C>
void cap_choices(const std::int32_t* index, const C* weight, const std::int32_t* positions,
                 std::int32_t* kept, const CapacityShape& s, void* workspace, Stream stream) {
  const dim3 grid(grid_of(s.experts), grid_of(s.sequences));
  cap_kernel<C><<<grid, threads, 0, stream>>>(index, weight, positions, kept, s,
                                              static_cast<std::int32_t*>(workspace));
  check_launch("cap_choices");
}

void count_dropped(const std::int32_t* index, const std::int32_t* targets, double* dropped,
                   const CapacityShape& s, Stream stream) {
  count_dropped_kernel<<<1, threads, 0, stream>>>(index, targets, dropped, s);
  check_launch("count_dropped");
}

template void cap_choices(const std::int32_t*, const float*, const std::int32_t*, std::int32_t*,
                          const CapacityShape&, void*, Stream);
template void cap_choices(const std::int32_t*, const double*, const std::int32_t*, std::int32_t*,
                          const CapacityShape&, void*, Stream);

}  // namespace prun::cuda
