#include "streams.hpp"

#include "cuda/check.hpp"

namespace prun::cuda {

Priorities priorities() {
  Priorities found{};
  check(cudaDeviceGetStreamPriorityRange(&found.least, &found.greatest), "priorities of streams");
  return found;
}

Stream make_stream(int priority) {
  Stream stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "making a stream");
  return stream;
}

}  // namespace prun::cuda
