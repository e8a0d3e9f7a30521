#include "cuda/tensor_grouped.hpp"

#include "cuda/tensor_grouped_jobs.cuh"
#include "cuda/tensor_grouped_pairs.cuh"
#include "cuda/tensor_map.hpp"

namespace prun::cuda {
namespace {

using namespace tensor_grouped_parts;

// ---------------------------------------------------------------- by warps
// Multiplies a stage while the factors of the next sixteen channels are loaded. With its last sixteen, the
// stage after it has to be there, and this one is free for copies; all threads agree on `more`.
template <class Job>
__device__ __forceinline__ void multiply_stage(WarpSums& sums, Factors<Job> (&factors)[2], Ring& from,
                                               Producer<Job, threads>& producer, bool more) {
#pragma unroll
  for (int i = 0; i < depth / 16; ++i) {
    if (i == depth / 16 - 1) {
      wait_for_stage(from.stages - 1);
      __syncthreads();
      from.advance();
    }
    if (i < depth / 16 - 1 || more) factors[(i + 1) % 2].load(from.stage(), (i + 1) % (depth / 16));
    if (i == 0) producer.copy_stage();
    sums.add(factors[i % 2]);
  }
}

template <class Job>
__device__ __forceinline__ void multiply_by_warps(const Job& job, const Schedule& schedule, Ring from) {
  const int tiles = schedule.tiles(), stride = static_cast<int>(gridDim.x);
  Producer<Job, threads> producer(job, schedule, from);
  for (int ahead = 1; ahead < from.stages; ++ahead) producer.copy_stage();
  wait_for_stage(from.stages - 1);
  __syncthreads();
  Factors<Job> factors[2];
  factors[0].load(from.stage(), 0);
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < tiles; number += stride) {
    const Tile tile = schedule.at(job, number);
    WarpSums sums;
    sums.clear();
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step)
      multiply_stage(sums, factors, from, producer, step + 1 < tile.steps || number + stride < tiles);
    put_tile(job, tile, sums);
  }
}

// ---------------------------------------------------------------- by four warps together
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// One stage is multiplied while the threads wait for the one before it: what lay two stages back is free for
// copies. So there are at least three.
template <class Job>
__device__ __forceinline__ void multiply_by_warpgroups(const Job& job, const Schedule& schedule, Ring from) {
  const int tiles = schedule.tiles(), stride = static_cast<int>(gridDim.x);
  Producer<Job, threads> producer(job, schedule, from);
  for (int ahead = 2; ahead < from.stages; ++ahead) producer.copy_stage();
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < tiles; number += stride) {
    const Tile tile = schedule.at(job, number);
    WarpgroupSums sums;
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step, from.advance()) {
      wait_for_stage(from.stages - 2);
      show_to_warpgroups();
      __syncthreads();
      sums.template add<Job>(from.stage(), step == 0);
      producer.copy_stage();
      wait_products<1>();
    }
    wait_products<0>();
    put_tile(job, tile, sums);
  }
}

// Of each stage, whether it is there to be multiplied, and free for copies. Turns are counted by stage.
struct Gates {
  std::uint64_t* memory;
  int stages;

  static constexpr int copiers = 128, warps = threads / 32;
  __device__ Gate full(int stage) const { return {memory + stage}; }
  __device__ Gate empty(int stage) const { return {memory + stages + stage}; }
  __device__ void begin() const {
    for (int i = 0; threadIdx.x == 0 && i < stages; ++i) full(i).begin(copiers), empty(i).begin(warps);
    __syncthreads();
  }
};

template <class Job>
__device__ __forceinline__ void copy_all(const Job& job, const Schedule& schedule, const Ring& to,
                                         const Gates& gates) {
  Producer<Job, Gates::copiers> producer(job, schedule, to);
  for (int turn = 0; producer.has_more();) {
    const int stage = producer.to.now;
    gates.empty(stage).wait(turn ^ 1);  // at once in the first turn
    producer.copy();
    gates.full(stage).arrive_with_copies();
    if (producer.to.now == 0) turn ^= 1;
  }
}

// One stage is multiplied while the threads wait for the one before it, which is free then.
template <class Job>
__device__ __forceinline__ void multiply_copied(const Job& job, const Schedule& schedule, Ring from,
                                                const Gates& gates) {
  const int tiles = schedule.tiles(), stride = static_cast<int>(gridDim.x);
  const bool first_lane = thread_modulo(32) == 0;
  int turn = 0, before = 0;
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < tiles; number += stride) {
    const Tile tile = schedule.at(job, number);
    WarpgroupSums sums;
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step) {
      gates.full(from.now).wait(turn);
      show_to_warpgroups();
      sums.template add<Job>(from.stage(), step == 0);
      wait_products<1>();
      if (step > 0 && first_lane) gates.empty(before).arrive();
      before = from.now;
      from.advance();
      if (from.now == 0) turn ^= 1;
    }
    wait_products<0>();
    if (first_lane) gates.empty(before).arrive();
    put_tile(job, tile, sums);
  }
}

// The last four warps copy, the others multiply.
template <class Job>
__device__ __forceinline__ void copy_and_multiply(const Job& job, const Schedule& schedule, const Ring& ring,
                                                  const Gates& gates) {
  gates.begin();
  if (threadIdx.x >= threads) {
    keep_registers<56>();
    copy_all(job, schedule, ring, gates);
  } else {
    take_registers<224>();
    multiply_copied(job, schedule, ring, gates);
  }
}
#endif

constexpr int threads_of(GroupedForm form) {
  return form == GroupedForm::producers ? threads + 128 : threads;
}

template <class Job, GroupedForm form>
__global__ __launch_bounds__(threads_of(form),
                             1) void grouped_kernel(const __grid_constant__ Job job,
                                                    const __grid_constant__ RowGroups groups, int stages) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Ring ring{reinterpret_cast<bf16*>(memory), stages};
  auto* const gates = reinterpret_cast<std::uint64_t*>(ring.memory + stages * stage_elements);
  const Schedule schedule(job, groups, gates + 2 * stages);
  if (static_cast<int>(blockIdx.x) >= schedule.tiles()) return;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (form == GroupedForm::producers)
    return copy_and_multiply(job, schedule, ring, Gates{gates, stages});
  if constexpr (form == GroupedForm::warpgroups) return multiply_by_warpgroups(job, schedule, ring);
#endif
  if constexpr (form == GroupedForm::warps) multiply_by_warps(job, schedule, ring);
}

// ---------------------------------------------------------------- the host's side
constexpr std::int64_t most_groups = 1024;
constexpr std::int64_t bytes_of_stage = stage_elements * 2 + 2 * 8;  // with its gates

// As many stages as shared memory holds, 2 to 4; fewer: none.
int stages_here(std::int64_t groups) {
  int device = 0, shared = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  const std::int64_t fit = (shared - Schedule::bytes(groups)) / bytes_of_stage;
  return fit < 2 ? 0 : static_cast<int>(std::min<std::int64_t>(fit, 4));
}

bool runs_here(const RowGroups& groups) {
  return groups.groups <= most_groups && groups.rows < (std::int64_t{1} << 30) &&
         stages_here(groups.groups) > 0;
}

bool fits(std::initializer_list<std::int64_t> widths) {
  return std::all_of(widths.begin(), widths.end(),
                     [](std::int64_t w) { return w > 0 && w % 8 == 0 && w < (std::int64_t{1} << 30); });
}

// Whether device and build have what it takes.
bool has_form(GroupedForm form) {
  if (form == GroupedForm::warps) return true;
#ifdef PRUN_WARPGROUPS
  int device = 0, generation = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  return generation == 9;
#else
  return false;
#endif
}

template <class Job, GroupedForm form>
void launch_form(const Job& job, const RowGroups& groups, std::int64_t most_tiles, Stream stream) {
  const int stages = stages_here(groups.groups);
  const auto bytes = static_cast<int>(stages * bytes_of_stage + Schedule::bytes(groups.groups));
  const auto kernel = grouped_kernel<Job, form>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory for grouped products");
  const unsigned blocks = grid_of(std::min<std::int64_t>(multiprocessors(), most_tiles));
  kernel<<<blocks, threads_of(form), bytes, stream>>>(job, groups, stages);
  check_launch("grouped product");
}

#ifdef PRUN_WARPGROUPS
template <class Job>
void launch_pairs(const Job& job, const RowGroups& groups, std::int64_t most_tiles, Stream stream) {
  const int stages = stages_here(groups.groups);
  const auto bytes = static_cast<int>(stages * bytes_of_stage + Schedule::bytes(groups.groups));
  const auto kernel = pair_kernel<Job>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory for grouped products");
  const std::int64_t pairs = std::min<std::int64_t>(multiprocessors() / pair_blocks, most_tiles);
  cudaLaunchAttribute together;
  together.id = cudaLaunchAttributeClusterDimension;
  together.val.clusterDim = {pair_blocks, 1, 1};
  cudaLaunchConfig_t how = {};
  how.gridDim = grid_of(pairs * pair_blocks);
  how.blockDim = threads + pair_copiers;
  how.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  how.stream = stream;
  how.attrs = &together;
  how.numAttrs = 1;
  const RightTensor right = job.right(groups);
  const CUtensorMap map = panels_of(right.data, right.columns, right.rows, right.planes, box_rows<Job>);
  check(cudaLaunchKernelEx(&how, kernel, job, map, groups, stages), "grouped products of pairs");
}
#endif

template <class Job>
void launch(const Job& job, const RowGroups& groups, std::int64_t most_tiles, GroupedForm form,
            Stream stream) {
  PRUN_CHECK(most_tiles < (std::int64_t{1} << 31), "grouped products: ", most_tiles, " tiles");
  if (most_tiles == 0) return;
  if (!has_form(form) || stages_here(groups.groups) < 3) form = GroupedForm::warps;
#ifdef PRUN_WARPGROUPS
  if (form == GroupedForm::pairs && groups.rows > 0 && job.can_share())
    return launch_pairs(job, groups, most_tiles, stream);
#endif
  if (form == GroupedForm::pairs || form == GroupedForm::producers)
    launch_form<Job, GroupedForm::producers>(job, groups, most_tiles, stream);
  else if (form == GroupedForm::warpgroups)
    launch_form<Job, GroupedForm::warpgroups>(job, groups, most_tiles, stream);
  else
    launch_form<Job, GroupedForm::warps>(job, groups, most_tiles, stream);
}

}  // namespace

GroupedForm grouped_form(std::int64_t summed) {
  constexpr std::int64_t few = 2048;
  if (!has_form(GroupedForm::warpgroups)) return GroupedForm::warps;
  return summed < few ? GroupedForm::producers : GroupedForm::warpgroups;
}

template <class Out>
bool tensor_grouped_takes(const GroupedProduct<Out>& call, const RowGroups& groups) {
  return fits({call.n, call.k}) && aligned({call.from.data, call.weight, call.to}) && runs_here(groups);
}

template <class S>
bool tensor_grouped_takes(const GroupedSums<S>& call, const RowGroups& groups) {
  return fits({call.m, call.n}) && aligned({call.left.data, call.right.data, call.sum.data}) &&
         runs_here(groups);
}

template <class Out, bool turned>
void tensor_grouped(const GroupedProduct<Out>& call, const RowGroups& groups, GroupedForm form,
                    Stream stream) {
  PRUN_CHECK(tensor_grouped_takes(call, groups), "grouped products on tensor cores cannot take this call");
  const std::int64_t down = groups.rows == 0 ? 0 : ceil_div(groups.rows, rows) + groups.groups;
  launch(RowsJob<Out, turned>{call}, groups, down * ceil_div(call.n, columns), form, stream);
}

template <class S>
void tensor_grouped(const GroupedSums<S>& call, const RowGroups& groups, GroupedForm form, Stream stream) {
  PRUN_CHECK(tensor_grouped_takes(call, groups), "grouped sums on tensor cores cannot take this call");
  const std::int64_t tiles = groups.groups * ceil_div(call.m, rows) * ceil_div(call.n, columns);
  launch(SumsJob<S>{call}, groups, tiles, form, stream);
}

#define PRUN_TENSOR_GROUPED(T)                                                                             \
  template bool tensor_grouped_takes(const GroupedProduct<T>&, const RowGroups&);                          \
  template bool tensor_grouped_takes(const GroupedSums<T>&, const RowGroups&);                             \
  template void tensor_grouped<T, false>(const GroupedProduct<T>&, const RowGroups&, GroupedForm, Stream); \
  template void tensor_grouped<T, true>(const GroupedProduct<T>&, const RowGroups&, GroupedForm, Stream);  \
  template void tensor_grouped(const GroupedSums<T>&, const RowGroups&, GroupedForm, Stream);
PRUN_TENSOR_GROUPED(bf16)
PRUN_TENSOR_GROUPED(float)
#undef PRUN_TENSOR_GROUPED

}  // namespace prun::cuda
