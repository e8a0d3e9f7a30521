// Multiplies bf16 with sums in float as the tensor cores of Hopper (sm_90a) do: four warps multiply 64 rows
// by 256 columns, from shared memory and while the threads go on. A kernel that is not compiled for them has
// none of this.
#pragma once

#include <cstdint>

namespace prun::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Says where a factor is in panels of 64 x 64 (shared_rows.cuh), each from a multiple of 1024 bytes on: rows
// by channels, or, turned, channels by rows, of which each panel has 64.
struct Factor {
  std::uint64_t bits;

  __device__ __forceinline__ explicit Factor(const void* panels) {
    constexpr std::uint64_t by_panel = 64 * 128 / 16, by_eight_rows = 1024 / 16, chunks_changed = 1;
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(panels));
    bits = (at & 0x3ffff) >> 4 | by_panel << 16 | by_eight_rows << 32 | chunks_changed << 62;
  }
  // Returns the bits of the place `step` times 16 channels further on: within rows, or as many rows below.
  template <bool turned>
  __device__ __forceinline__ std::uint64_t at(int step) const {
    return bits + static_cast<std::uint64_t>(step) * (turned ? 16 * 128 / 16 : 32 / 16);
  }
};

// Makes data that threads have written to shared memory, or copied there and waited for, readable by products
// that are begun after a barrier.
__device__ __forceinline__ void show_to_warpgroups() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `pending` groups of products are under way.
template <int pending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Stores four matrices of 8 x 8 to shared memory: the reverse of load_matrices() (tensor_core.cuh).
__device__ __forceinline__ void store_matrices(void* row, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// Is a barrier in shared memory that opens when the given number has arrived, turn after turn.
struct Gate {
  std::uint64_t* at;

  __device__ __forceinline__ std::uint32_t address() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
  }
  __device__ __forceinline__ void begin(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  // Arrives once all copies that this thread has begun are done.
  __device__ __forceinline__ void arrive_with_copies() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address()) : "memory");
  }
  // Waits for the end of a turn, by its number modulo 2.
  __device__ __forceinline__ void wait(int turn) const {
    std::uint32_t open = 0;
    while (!open)
      asm volatile(
          "{\n.reg .pred open;\nmbarrier.try_wait.parity.shared::cta.b64 open, [%1], %2;\n"
          "selp.u32 %0, 1, 0, open;\n}\n"
          : "=r"(open)
          : "r"(address()), "r"(turn)
          : "memory");
  }
};

// Meets so many threads of a block, in whole warps, at its barrier of that number; 0 is that of all threads.
template <int threads>
__device__ __forceinline__ void meet_threads(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

// These set the registers of each thread of four warps, all of which must call it: some give back, others
// take.
template <int registers>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#define PRUN_4(i) "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
#define PRUN_16(i) PRUN_4(i), PRUN_4(i + 1), PRUN_4(i + 2), PRUN_4(i + 3)

// Computes sums = or, where it `adds`, += left x right over 16 channels: a thread holds, of 32 tiles of 8
// columns, rows lane / 4 and lane / 4 + 8 of its warp's 16 and the same columns as with multiply_add(). Until
// the products were waited for, no thread may use the sums.
template <bool left_turned, bool right_turned>
__device__ __forceinline__ void multiply_async(float (&sums)[32][4], std::uint64_t left, std::uint64_t right,
                                               bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, adds, 1, 1, %131, %132;\n}\n"
      : PRUN_16(0), PRUN_16(4), PRUN_16(8), PRUN_16(12), PRUN_16(16), PRUN_16(20), PRUN_16(24), PRUN_16(28)
      : "l"(left), "l"(right), "r"(static_cast<int>(adds)), "n"(left_turned ? 1 : 0),
        "n"(right_turned ? 1 : 0));
}

#undef PRUN_16
#undef PRUN_4
#endif

}  // namespace prun::cuda
