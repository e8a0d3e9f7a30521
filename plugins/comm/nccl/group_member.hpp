// Wraps one communicator of NCCL, with all that is done with it.
//
// NCCL's calls return at once and say later how they went (non-blocking communicators); each is made under a
// lock, and what it began is asked for until it is done. So any thread may abort at any time: NCCL frees a
// communicator that is aborted, and no thread is inside by then.
#pragma once

#include <nccl.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/graph.hpp"
#include "cuda/library.hpp"
#include "prun/comm.hpp"

namespace prun::nccl {

// ------------------------------------------------------------------- api
// Gives NCCL's functions, from a library that is opened when the first communicator is made: so the plugin
// loads where there is no NCCL.

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

// ------------------------------------------------------------------- enqueue
// Puts operations on a stream, each by the call that NCCL has for it.

// Says where operations go: to a communicator of `size` members, on a stream.
struct Target {
  const Api& api;
  ncclComm_t comm;
  std::int32_t size;
  cudaStream_t stream;
};

// Puts all operations there as one group. Returns what NCCL says, at the first call that it refuses.
ncclResult_t enqueue(std::span<const CommOp> ops, const Target& to);

// ------------------------------------------------------------------- group member

// States how many blocks an exchange runs on, each of which keeps a multiprocessor; 0 leaves it to NCCL.
struct Blocks {
  int least = 0, most = 0;
};

class GroupMember {
 public:
  // This is collective: members meet through the group's exchange.
  GroupMember(const Api& api, const CommGroup& group, Blocks blocks);
  // This is collective over the members of the parent; it returns null on members that are in no group.
  static std::unique_ptr<GroupMember> split(GroupMember& parent, const CommGroup& group, Blocks blocks);
  ~GroupMember();
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;

  // Registers memory with NCCL that operations will use. Returns NCCL's objection, or nothing.
  std::string enroll(void* base, std::int64_t bytes);
  void dismiss();
  // Runs each operation once, alone and beside the others, and holds the caller until that is done.
  void connect(std::span<const CommOp> ops, cudaStream_t stream);
  // Makes a CUDA graph of the operations: enqueued anew, a group costs NCCL a thread each time.
  void prepare(std::span<const CommOp> ops, cudaStream_t stream);
  // Starts all operations as one group.
  void start(std::span<const CommOp> ops, cudaStream_t stream);
  void abort();
  // Throws if anything has gone wrong since.
  void check();

  const std::string& name() const { return name_; }
  std::int32_t size() const { return size_; }
  const CommCounters& counters() const { return counters_; }

 private:
  GroupMember(const Api& api, const CommGroup& group) noexcept;

  template <class Call>
  void call(const char* doing, Call&& call);
  void settle(const char* doing);
  Target target(cudaStream_t stream) const { return {api_, comm_, size_, stream}; }
  void finish(cudaStream_t stream);
  // These are called with the lock held.
  bool is_settled(const char* doing);
  void accept(ncclResult_t result, const char* doing);
  void abort_locked();

  const Api& api_;
  std::string name_;
  std::int32_t rank_, size_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null once the communicator was aborted
  bool aborted_ = false;
  void* enrolled_ = nullptr;
  // Graphs are keyed by the address of their first operation. NCCL waits until they are gone before it ends a
  // communicator.
  std::unordered_map<const CommOp*, std::unique_ptr<cuda::Graph>> graphs_;
  CommCounters counters_;
};

// ------------------------------------------------------------------- traffic
// Counts what an operation puts on the wire, by the ring that NCCL is configured to use, in payload bytes, as
// both the plan and the counters do.

struct Traffic {
  std::uint64_t sent = 0, received = 0;
};

// Returns the traffic of member `rank` of a group of `size` members.
Traffic traffic_of(const CommOp& op, std::int32_t rank, std::int32_t size);

}  // namespace prun::nccl
