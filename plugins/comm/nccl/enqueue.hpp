// Puts operations on a stream, each by the call that NCCL has for it.
#pragma once

#include <span>

#include "api.hpp"
#include "prun/comm.hpp"

namespace prun::nccl {

// Says where operations go: to a communicator of `size` members, on a stream.
struct Target {
  const Api& api;
  ncclComm_t comm;
  std::int32_t size;
  cudaStream_t stream;
};

// Puts all operations there as one group. Returns what NCCL says, at the first call that it refuses.
ncclResult_t enqueue(std::span<const CommOp> ops, const Target& to);

}  // namespace prun::nccl
