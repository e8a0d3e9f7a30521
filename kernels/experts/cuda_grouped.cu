#include "experts/cuda_grouped.hpp"

#include "cuda/tensor_map.hpp"
#include "experts/cuda_grouped_jobs.cuh"
#include "experts/cuda_grouped_pairs.cuh"

namespace prun::cuda {
namespace {

using namespace tensor_grouped_parts;

// ---------------------------------------------------------------- by warps
// Multiplies a stage while the factors of the next sixteen channels are loaded. With its last sixteen, the
// stage after it has to be there, and this stage is free for copies; all threads agree on `more`.
template <class Job>
__device__ __forceinline__ void multiply_stage(WarpSums& sums, Factors<Job> (&factors)[2], Ring& from,
                                               Producer<Job>& producer, bool more) {
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
  Producer<Job> producer(job, schedule, from);
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

template <class Job>
__global__ __launch_bounds__(threads, 1) void grouped_kernel(const __grid_constant__ Job job,
                                                             const __grid_constant__ RowGroups groups,
                                                             int stages) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Ring ring{reinterpret_cast<bf16*>(memory), stages};
  const Schedule schedule(job, groups, ring.memory + stages * stage_elements);
  if (static_cast<int>(blockIdx.x) < schedule.tiles()) multiply_by_warps(job, schedule, ring);
}

// ---------------------------------------------------------------- the host's side
constexpr std::int64_t most_groups = 1024;
constexpr std::int64_t bytes_of_stage = stage_elements * 2 + 2 * 8;  // counts its gates too

// Returns as many stages, 2 to 4, as shared memory holds beside `beside`; 0 where it holds fewer.
int stages_here(std::int64_t groups, std::int64_t beside = 0) {
  int device = 0, shared = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  const std::int64_t fit = (shared - beside - Schedule::bytes(groups)) / bytes_of_stage;
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

// Says whether device and build have what four warps together and pairs of blocks need.
bool has_pairs() {
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

template <class Kernel>
int with_memory(Kernel kernel, std::int64_t stages, std::int64_t beside) {
  const auto bytes = static_cast<int>(stages * bytes_of_stage + beside);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory for grouped products");
  return bytes;
}

template <class Job>
void launch_warps(const Job& job, const RowGroups& groups, std::int64_t most_tiles, Stream stream) {
  const int stages = stages_here(groups.groups);
  const int bytes = with_memory(grouped_kernel<Job>, stages, Schedule::bytes(groups.groups));
  const unsigned blocks = grid_of(std::min<std::int64_t>(multiprocessors(), most_tiles));
  grouped_kernel<<<blocks, threads, bytes, stream>>>(job, groups, stages);
  check_launch("grouped product");
}

#ifdef PRUN_WARPGROUPS
template <class Job>
void launch_pairs(const Job& job, const RowGroups& groups, std::int64_t most_tiles, Stream stream) {
  const int stages = stages_here(groups.groups, all_strips_bytes<Job>);
  const std::int64_t pairs = std::min<std::int64_t>(multiprocessors() / pair_blocks, most_tiles);
  cudaLaunchAttribute together;
  together.id = cudaLaunchAttributeClusterDimension;
  together.val.clusterDim = {pair_blocks, 1, 1};
  cudaLaunchConfig_t how = {};
  how.gridDim = grid_of(pairs * pair_blocks);
  how.blockDim = threads + pair_copiers;
  how.dynamicSmemBytes = static_cast<std::size_t>(
      with_memory(pair_kernel<Job>, stages, all_strips_bytes<Job> + Schedule::bytes(groups.groups)));
  how.stream = stream;
  how.attrs = &together;
  how.numAttrs = 1;
  const RightTensor right = job.right(groups);
  const CUtensorMap map = panels_of(right.data, right.columns, right.rows, right.planes, box_rows<Job>);
  check(cudaLaunchKernelEx(&how, pair_kernel<Job>, job, map, groups, stages), "grouped products of pairs");
}
#endif

// Without rows there may still be sums that begin.
template <class Job>
void launch(const Job& job, const RowGroups& groups, std::int64_t most_tiles,
            [[maybe_unused]] GroupedForm form, Stream stream) {
  PRUN_CHECK(most_tiles < (std::int64_t{1} << 31), "grouped products: ", most_tiles, " tiles");
  if (most_tiles == 0) return;
#ifdef PRUN_WARPGROUPS
  if (form == GroupedForm::pairs && groups.rows > 0 && has_pairs() &&
      stages_here(groups.groups, all_strips_bytes<Job>) >= 3)
    return launch_pairs(job, groups, most_tiles, stream);
#endif
  launch_warps(job, groups, most_tiles, stream);
}

}  // namespace

GroupedForm grouped_form() { return has_pairs() ? GroupedForm::pairs : GroupedForm::warps; }

bool tensor_grouped_takes(const GroupedProduct& call, const RowGroups& groups) {
  return fits({call.n, call.k}) && aligned({call.from.data, call.weight, call.to}) && runs_here(groups);
}

template <class S>
bool tensor_grouped_takes(const GroupedSums<S>& call, const RowGroups& groups) {
  return fits({call.m, call.n}) && aligned({call.left.data, call.right, call.sum.data}) && runs_here(groups);
}

template <bool turned>
void tensor_grouped(const GroupedProduct& call, const RowGroups& groups, GroupedForm form, Stream stream) {
  PRUN_CHECK(tensor_grouped_takes(call, groups), "grouped products on tensor cores cannot take this call");
  const std::int64_t down = groups.rows == 0 ? 0 : ceil_div(groups.rows, rows) + groups.groups;
  launch(RowsJob<turned>{call}, groups, down * ceil_div(call.n, columns), form, stream);
}

template <class S>
void tensor_grouped(const GroupedSums<S>& call, const RowGroups& groups, GroupedForm form, Stream stream) {
  PRUN_CHECK(tensor_grouped_takes(call, groups), "grouped sums on tensor cores cannot take this call");
  const std::int64_t tiles = groups.groups * ceil_div(call.m, rows) * ceil_div(call.n, columns);
  launch(SumsJob<S>{call}, groups, tiles, form, stream);
}

template void tensor_grouped<false>(const GroupedProduct&, const RowGroups&, GroupedForm, Stream);
template void tensor_grouped<true>(const GroupedProduct&, const RowGroups&, GroupedForm, Stream);
template bool tensor_grouped_takes(const GroupedSums<bf16>&, const RowGroups&);
template bool tensor_grouped_takes(const GroupedSums<float>&, const RowGroups&);
template void tensor_grouped(const GroupedSums<bf16>&, const RowGroups&, GroupedForm, Stream);
template void tensor_grouped(const GroupedSums<float>&, const RowGroups&, GroupedForm, Stream);

}  // namespace prun::cuda
