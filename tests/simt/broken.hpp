// Kernels with one fault each, or with none where that is easily taken for one.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch.hpp"

namespace prun::simt_test {

using cuda::Stream;

// Turns blocks of 64 numbers around, through shared memory.
enum class Turn { right, without_barrier, too_early_again, of_unwritten, beyond };
void turn_around(Turn how, double* numbers, int blocks, Stream stream);

// A number that all threads have read from shared memory is changed, after a barrier or at once.
void change_what_is_read(bool after_barrier, double* to, Stream stream);

// A barrier that half of the threads reach, at two places, or after some have ended.
enum class Barrier { by_half, at_two_places, after_some_ended };
void wait(Barrier how, Stream stream);
void exchange_by_half(Stream stream);

// Every thread of every block adds to one number.
void add_ones(bool atomically, double* sum, Stream stream);
// Blocks write what the next one reads.
void pass_on(double* numbers, Stream stream);
// With a wait for the copy to shared memory, or without.
void copy(bool waits, const double* from, double* to, Stream stream);

}  // namespace prun::simt_test
