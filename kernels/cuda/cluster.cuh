// Serves what the blocks of a cluster do together on Hopper (sm_90a): they meet, open each other's gates, and
// share data that one of them copies. A kernel that is not compiled for it has none of this.
#pragma once

#include <cuda.h>

#include "cuda/warpgroup.cuh"

namespace prun::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ int cluster_rank() {
  int rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks must call it: data that each has written to shared memory before, all can read
// after.
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Makes gates that this thread has begun visible to others' copies once the cluster has met.
__device__ __forceinline__ void show_gates() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives at the gate of the block of that rank at the address that this gate has here. This is not enough to
// show data to other threads of that block; it is enough to say that this thread is done with some.
__device__ __forceinline__ void arrive_in(const Gate& gate, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(gate.address()),
      "r"(rank)
      : "memory");
}

// Arrives, and keeps the gate closed until as many bytes were copied for it.
__device__ __forceinline__ void arrive_for_bytes(const Gate& gate, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gate.address()), "r"(bytes)
               : "memory");
}

// Begins to copy a box into the same place of both blocks of a pair, for the same gate of each.
__device__ __forceinline__ void copy_box_to_both(void* shared, const CUtensorMap& map, int column, int row,
                                                 int plane, const Gate& gate) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
          static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(&map), "r"(column), "r"(row), "r"(plane), "r"(gate.address()), "h"(std::uint16_t{3})
      : "memory");
}
#endif

}  // namespace prun::cuda
