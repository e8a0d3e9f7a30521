// The runtime's calls, done when they are made. The device is like an H200 with few multiprocessors, so that
// blocks have several turns.
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>

#include "tests/simt/machine.hpp"
#include "tests/simt/watch.hpp"

namespace {

// Pieces of device memory by where they begin, and how long they are.
std::map<std::size_t, std::size_t>& pieces() {
  static std::map<std::size_t, std::size_t> all;
  return all;
}

std::string& last_failure() {
  static std::string text;
  return text;
}

}  // namespace

cudaError_t cudaGetLastError() {
  const std::string failure = prun::simt::take_failure();
  if (failure.empty()) return cudaSuccess;
  last_failure() = failure;
  return cudaErrorLaunchFailure;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                 ? "no error"
         : error == cudaErrorLaunchFailure    ? last_failure().c_str()
         : error == cudaErrorMemoryAllocation ? "out of memory"
                                              : "invalid value";
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  constexpr int shared = static_cast<int>(prun::simt::most_shared), reserved = 1024;
  switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = shared + reserved; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = reserved; break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// Aligned as by CUDA, in the first gap that is large enough.
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  const std::size_t length = (bytes + alignment) / alignment * alignment;
  std::size_t at = 0;
  for (const auto& [begin, piece] : pieces()) {
    if (begin - at >= length) break;
    at = begin + piece;
  }
  if (at + length > prun::simt::Watch::memory_bytes) return cudaErrorMemoryAllocation;
  pieces()[at] = length;
  *memory = prun::simt::watch().memory() + at;
  prun::simt::watch().set_written(*memory, length, false);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  const auto at = static_cast<std::size_t>(static_cast<char*>(memory) - prun::simt::watch().memory());
  return pieces().erase(at) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

// Memory full of ones is poisoned: it counts as never written.
cudaError_t cudaMemset(void* to, int byte, std::size_t bytes) {
  std::memset(to, byte, bytes);
  prun::simt::watch().set_written(to, bytes, byte != 0xff);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t) {
  return cudaMemset(to, byte, bytes);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes == 0) return cudaSuccess;
  std::memcpy(to, from, bytes);
  prun::simt::watch().set_written(to, bytes, true);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
