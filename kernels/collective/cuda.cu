#include "collective/cuda.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

constexpr unsigned threads = 256;

// Words of run i of the source lie at from_of(i), in words; those of the target at i * run.
template <class Word, class FromOf>
__global__ void gather_runs_kernel(const Word* from, Word* to, std::int64_t words, std::int64_t run,
                                   FromOf from_of) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t w = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; w < words;
       w += step)
    to[w] = from[from_of(w / run) + w % run];
}

template <class Word>
__global__ void gate_kernel(const Word* from, const double* open, Word* to, std::int64_t words) {
  const bool pass = *open != 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t w = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; w < words;
       w += step)
    to[w] = pass ? from[w] : Word{};
}

// Words of run i go to i * stride + first.
template <class Word>
__global__ void put_runs_kernel(const Word* from, Word* to, std::int64_t words, std::int64_t run,
                                std::int64_t stride, std::int64_t first) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t w = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; w < words;
       w += step)
    to[w / run * stride + first + w % run] = from[w];
}

struct Transposed {
  std::int64_t a, b, run;
  __device__ std::int64_t operator()(std::int64_t i) const { return (i % a * b + i / a) * run; }
};

struct Strided {
  std::int64_t stride, first;
  __device__ std::int64_t operator()(std::int64_t i) const { return i * stride + first; }
};

// Moves chunks of sequences from their places to positions, or `back`: prun/sequence_order.hpp.
struct Chunks {
  std::int64_t count;
  bool back;
  std::int64_t run;
  __device__ std::int64_t operator()(std::int64_t i) const {
    const std::int64_t n = i % count, opposite = count - 1 - n;
    const std::int64_t position = n % 2 == 0 ? n / 2 : count - 1 - n / 2,
                       place = n <= opposite ? 2 * n : 2 * opposite + 1;
    return (i / count * count + (back ? position : place)) * run;
  }
};

// Calls launch with the widest word that pointers and all of these numbers of bytes are multiples of.
template <class Launch>
void with_word(std::initializer_list<const void*> pointers, std::initializer_list<std::int64_t> bytes,
               Launch launch) {
  std::uintptr_t bits = 0;
  for (const void* p : pointers) bits |= reinterpret_cast<std::uintptr_t>(p);
  for (std::int64_t n : bytes) bits |= static_cast<std::uintptr_t>(n);
  if (bits % 16 == 0) return launch(uint4{});
  if (bits % 4 == 0) return launch(std::uint32_t{});
  launch(std::uint8_t{});
}

unsigned blocks_for(std::int64_t words) {
  return grid_of(std::min<std::int64_t>(ceil_div(words, threads), std::int64_t{16} * multiprocessors()));
}

}  // namespace

void swap_outer(const void* from, void* to, std::int64_t a, std::int64_t b, std::int64_t bytes,
                Stream stream) {
  if (a * b * bytes == 0) return;
  with_word({from, to}, {bytes}, [&]<class Word>(Word) {
    const auto run = bytes / static_cast<std::int64_t>(sizeof(Word)), words = a * b * run;
    gather_runs_kernel<<<blocks_for(words), threads, 0, stream>>>(
        static_cast<const Word*>(from), static_cast<Word*>(to), words, run, Transposed{a, b, run});
  });
  check_launch("swap_outer");
}

void take(const void* from, void* to, std::int64_t count, std::int64_t stride, std::int64_t first,
          std::int64_t bytes, Stream stream) {
  if (count * bytes == 0) return;
  with_word({from, to}, {stride, first, bytes}, [&]<class Word>(Word) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(Word));
    gather_runs_kernel<<<blocks_for(count * bytes / size), threads, 0, stream>>>(
        static_cast<const Word*>(from), static_cast<Word*>(to), count * bytes / size, bytes / size,
        Strided{stride / size, first / size});
  });
  check_launch("take");
}

void put(const void* from, void* to, std::int64_t count, std::int64_t stride, std::int64_t first,
         std::int64_t bytes, Stream stream) {
  if (count * bytes == 0) return;
  with_word({from, to}, {stride, first, bytes}, [&]<class Word>(Word) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(Word));
    put_runs_kernel<<<blocks_for(count * bytes / size), threads, 0, stream>>>(
        static_cast<const Word*>(from), static_cast<Word*>(to), count * bytes / size, bytes / size,
        stride / size, first / size);
  });
  check_launch("put");
}

void reorder_chunks(const void* from, void* to, std::int64_t samples, std::int64_t chunks, std::int64_t bytes,
                    bool back, Stream stream) {
  const std::int64_t all = samples * chunks * bytes;
  if (all == 0) return;
  with_word({from, to}, {bytes}, [&]<class Word>(Word) {
    const auto run = bytes / static_cast<std::int64_t>(sizeof(Word)), words = samples * chunks * run;
    gather_runs_kernel<<<blocks_for(words), threads, 0, stream>>>(
        static_cast<const Word*>(from), static_cast<Word*>(to), words, run, Chunks{chunks, back, run});
  });
  check_launch("reorder_chunks");
}

void gate(const void* from, const double* open, void* to, std::int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  with_word({from, to}, {bytes}, [&]<class Word>(Word) {
    const auto words = bytes / static_cast<std::int64_t>(sizeof(Word));
    gate_kernel<<<blocks_for(words), threads, 0, stream>>>(static_cast<const Word*>(from), open,
                                                           static_cast<Word*>(to), words);
  });
  check_launch("gate");
}

}  // namespace prun::cuda
