// States what one build of kernels/cpu may assume. Every file here is compiled once per instruction set, with
// PRUN_ISA naming it (generic, avx2 or avx512) and its namespace; the build adds the matching -m flags.
#pragma once

#include <cstdint>

#ifndef PRUN_ISA
#define PRUN_ISA generic  // for editors; the build always sets it
#endif

#define PRUN_ISA_PASTE(a, b) a##b
#define PRUN_ISA_JOIN(a, b) PRUN_ISA_PASTE(a, b)
#define PRUN_ISA_RANK_generic 0
#define PRUN_ISA_RANK_avx2 1
#define PRUN_ISA_RANK_avx512 2
// This is a number for the preprocessor: #if PRUN_ISA_RANK >= 1 is "AVX2 with FMA or better".
#define PRUN_ISA_RANK PRUN_ISA_JOIN(PRUN_ISA_RANK_, PRUN_ISA)

namespace prun::cpu::PRUN_ISA {

#if PRUN_ISA_RANK == 2
inline constexpr int vector_bytes = 64;
inline constexpr int vector_registers = 32;
#elif PRUN_ISA_RANK == 1
inline constexpr int vector_bytes = 32;
inline constexpr int vector_registers = 16;
#else
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 16;
#endif

template <class T>
inline constexpr int vector_lanes = vector_bytes / static_cast<int>(sizeof(T));

// Is a register full of T: arithmetic works lane by lane, and scalar op vector broadcasts the scalar.
template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(vector_bytes)));
  // Is such a vector in memory, at any address that suits T.
  typedef T Unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

}  // namespace prun::cpu::PRUN_ISA
