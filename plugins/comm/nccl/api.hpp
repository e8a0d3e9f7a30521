// Gives NCCL's functions, from a library that is opened when the first communicator is made: so the plugin
// loads where there is no NCCL.
#pragma once

#include <nccl.h>

#include <string>

#include "cuda/library.hpp"

namespace prun::nccl {

struct Api {
  // Looks into `folders` first. Refuses a library that lacks what is used here.
  explicit Api(const std::string& folders);

  cuda::Library library;
  std::string version;  // "2.28.9"
  decltype(ncclGetVersion)* get_version;
  decltype(ncclGetErrorString)* error_string;
  decltype(ncclGetLastError)* last_error;
  decltype(ncclGetUniqueId)* unique_id;
  decltype(ncclCommInitRankConfig)* init;
  decltype(ncclCommSplit)* split;
  decltype(ncclCommFinalize)* finalize;
  decltype(ncclCommDestroy)* destroy;
  decltype(ncclCommAbort)* abort;
  decltype(ncclCommGetAsyncError)* async_error;
  decltype(ncclCommRegister)* enroll;
  decltype(ncclCommDeregister)* dismiss;
  decltype(ncclGroupStart)* group_start;
  decltype(ncclGroupEnd)* group_end;
  decltype(ncclAllReduce)* all_reduce;
  decltype(ncclAllGather)* all_gather;
  decltype(ncclReduceScatter)* reduce_scatter;
  decltype(ncclBroadcast)* broadcast;
  decltype(ncclSend)* send;
  decltype(ncclRecv)* recv;
};

}  // namespace prun::nccl
