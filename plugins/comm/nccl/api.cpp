#include "api.hpp"

#include "prun/error.hpp"

namespace prun::nccl {
namespace {

// ncclCommRegister and communicators split without sharing need this version.
constexpr int oldest = NCCL_VERSION(2, 19, 1);

std::string text_of(int version) {
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

}  // namespace

Api::Api(const std::string& folders)
    : library({"NCCL",
               {"libnccl.so.2"},
               "install NCCL (from NVIDIA's packages, or the Python package nvidia-nccl-cu13)"},
              folders) {
  library.find("ncclGetVersion", get_version);
  int number = 0;
  if (get_version(&number) != ncclSuccess || number < oldest)
    throw_error(ErrorCode::unsupported, "comm nccl: ", library.path(), " is NCCL ", text_of(number),
                "; install ", text_of(oldest), " or newer");
  version = text_of(number);
  library.find("ncclGetErrorString", error_string);
  library.find("ncclGetLastError", last_error);
  library.find("ncclGetUniqueId", unique_id);
  library.find("ncclCommInitRankConfig", init);
  library.find("ncclCommSplit", split);
  library.find("ncclCommFinalize", finalize);
  library.find("ncclCommDestroy", destroy);
  library.find("ncclCommAbort", abort);
  library.find("ncclCommGetAsyncError", async_error);
  library.find("ncclCommRegister", enroll);
  library.find("ncclCommDeregister", dismiss);
  library.find("ncclGroupStart", group_start);
  library.find("ncclGroupEnd", group_end);
  library.find("ncclAllReduce", all_reduce);
  library.find("ncclAllGather", all_gather);
  library.find("ncclReduceScatter", reduce_scatter);
  library.find("ncclBroadcast", broadcast);
  library.find("ncclSend", send);
  library.find("ncclRecv", recv);
}

}  // namespace prun::nccl
