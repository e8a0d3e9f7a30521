#include "group_member.hpp"

#include <chrono>
#include <thread>

#include "prun/error.hpp"

namespace prun::nccl {
namespace {

// ------------------------------------------------------------------- api

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

namespace {

// ------------------------------------------------------------------- enqueue

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
    case DType::u16: break;
  }
  throw_error(ErrorCode::unsupported, "comm nccl: no operation of ", name_of(dtype));
}

ncclRedOp_t reduction_of(Reduction reduction) { return reduction == Reduction::sum ? ncclSum : ncclMax; }

ncclResult_t enqueue_all_to_all(const CommOp& op, const Target& to) {
  const auto count = static_cast<std::size_t>(op.count);
  const std::int64_t bytes = op.count * size_of(op.dtype);
  ncclResult_t result = ncclSuccess;
  for (std::int32_t peer = 0; peer < to.size; ++peer) {
    const auto* const in = static_cast<const std::byte*>(op.in) + peer * bytes;
    auto* const out = static_cast<std::byte*>(op.out) + peer * bytes;
    if (result == ncclSuccess) result = to.api.send(in, count, type_of(op.dtype), peer, to.comm, to.stream);
    if (result == ncclSuccess) result = to.api.recv(out, count, type_of(op.dtype), peer, to.comm, to.stream);
  }
  return result;
}

ncclResult_t enqueue_one(const CommOp& op, const Target& to) {
  const auto count = static_cast<std::size_t>(op.count);
  const ncclDataType_t type = type_of(op.dtype);
  switch (op.kind) {
    case CommKind::all_reduce:
      return to.api.all_reduce(op.in, op.out, count, type, reduction_of(op.reduction), to.comm, to.stream);
    case CommKind::all_gather: return to.api.all_gather(op.in, op.out, count, type, to.comm, to.stream);
    case CommKind::reduce_scatter:
      return to.api.reduce_scatter(op.in, op.out, count, type, reduction_of(op.reduction), to.comm,
                                   to.stream);
    case CommKind::broadcast:
      return to.api.broadcast(op.out, op.out, count, type, op.peer, to.comm, to.stream);
    case CommKind::all_to_all: return enqueue_all_to_all(op, to);
    case CommKind::send: return to.api.send(op.in, count, type, op.peer, to.comm, to.stream);
    case CommKind::recv: return to.api.recv(op.out, count, type, op.peer, to.comm, to.stream);
    case CommKind::barrier: break;
  }
  return ncclInvalidUsage;  // connect() has refused it
}

}  // namespace

// A group that was begun must be ended, whatever its operations say.
ncclResult_t enqueue(std::span<const CommOp> ops, const Target& to) {
  ncclResult_t result = to.api.group_start();
  if (result != ncclSuccess) return result;
  for (const CommOp& op : ops)
    if (result == ncclSuccess || result == ncclInProgress) result = enqueue_one(op, to);
  const ncclResult_t ended = to.api.group_end();
  return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

// ------------------------------------------------------------------- traffic

Traffic traffic_of(const CommOp& op, std::int32_t rank, std::int32_t size) {
  const auto bytes = static_cast<std::uint64_t>(op.count * size_of(op.dtype));
  const auto others = static_cast<std::uint64_t>(size - 1);
  const auto both = [](std::uint64_t each_way) { return Traffic{each_way, each_way}; };
  switch (op.kind) {
    case CommKind::all_reduce: return both(2 * others * bytes / static_cast<std::uint64_t>(size));
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return both(others * bytes);
    case CommKind::broadcast: {  // along the ring from the root, which the last one's neighbour is
      const bool last = (rank + 1) % size == op.peer;
      return {last ? 0 : bytes, rank == op.peer ? 0 : bytes};
    }
    case CommKind::send: return {bytes, 0};
    case CommKind::recv: return {0, bytes};
    case CommKind::barrier: return {};
  }
  return {};
}

namespace {

// ------------------------------------------------------------------- group member

// Waits between two looks at NCCL, whose work behind a call takes some ten microseconds, or as long as the
// other members do.
void pause(int round) {
  constexpr int patience = 500;
  if (round < patience)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

ncclConfig_t config_of(const std::string& name, Blocks blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  config.commName = name.c_str();
  if (blocks.least > 0) config.minCTAs = blocks.least;
  if (blocks.most > 0) config.maxCTAs = blocks.most;
  return config;
}

}  // namespace

GroupMember::GroupMember(const Api& api, const CommGroup& group) noexcept
    : api_(api), name_(group.name.view()), rank_(group.rank), size_(group.size) {}

GroupMember::GroupMember(const Api& api, const CommGroup& group, Blocks blocks) : GroupMember(api, group) {
  ncclUniqueId mine{};
  if (rank_ == 0) accept(api_.unique_id(&mine), "opening a port to meet at");
  std::vector<ncclUniqueId> all(static_cast<std::size_t>(size_));
  raise(group.exchange->all_gather(group.exchange->context, &mine, sizeof mine, all.data()));
  ncclConfig_t config = config_of(name_, blocks);
  accept(api_.init(&comm_, size_, all.front(), rank_, &config), "meeting the others");
  settle("meeting the others");
}

std::unique_ptr<GroupMember> GroupMember::split(GroupMember& parent, const CommGroup& group, Blocks blocks) {
  std::unique_ptr<GroupMember> member(new GroupMember(parent.api_, group));
  ncclConfig_t config = config_of(member->name_, blocks);
  parent.call("splitting", [&] {
    return parent.api_.split(parent.comm_, group.color < 0 ? NCCL_SPLIT_NOCOLOR : group.color, parent.rank_,
                             &member->comm_, &config);
  });
  if (group.color < 0) return nullptr;
  member->settle("splitting");
  return member;
}

GroupMember::~GroupMember() {
  if (!comm_) return;
  try {
    call("ending", [&] { return api_.finalize(comm_); });
    api_.destroy(comm_);
  } catch (const Error&) {
    abort();
  }
}

// ---------------------------------------------------------------- calls

// Makes a call and holds the caller until NCCL is done with what it began.
template <class Call>
void GroupMember::call(const char* doing, Call&& call) {
  {
    const std::scoped_lock lock(mutex_);
    accept(aborted_ ? ncclSuccess : call(), doing);
  }
  settle(doing);
}

void GroupMember::settle(const char* doing) {
  for (int round = 0;; ++round) {
    {
      const std::scoped_lock lock(mutex_);
      if (is_settled(doing)) return;
    }
    pause(round);
  }
}

bool GroupMember::is_settled(const char* doing) {
  if (aborted_)
    throw_error(ErrorCode::comm_failed, "comm nccl: group '", name_, "' was aborted while ", doing);
  ncclResult_t state = ncclSuccess;
  accept(api_.async_error(comm_, &state), doing);
  accept(state, doing);
  return state == ncclSuccess;
}

// A call that NCCL refuses before it has begun can be mended; any other failure ends the group.
void GroupMember::accept(ncclResult_t result, const char* doing) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string why = detail::concat("comm nccl: group '", name_, "': ", doing, ": ",
                                         api_.error_string(result), "; ", api_.last_error(nullptr));
  abort_locked();
  const bool misused = result == ncclInvalidUsage || result == ncclInvalidArgument;
  throw_error(misused ? ErrorCode::unsupported : ErrorCode::comm_failed, why);
}

void GroupMember::abort() {
  const std::scoped_lock lock(mutex_);
  abort_locked();
}

void GroupMember::abort_locked() {
  graphs_.clear();
  if (comm_) api_.abort(comm_);
  comm_ = nullptr;
  aborted_ = true;
}

void GroupMember::check() {
  const std::scoped_lock lock(mutex_);
  is_settled("running operations");
}

// ---------------------------------------------------------------- memory

std::string GroupMember::enroll(void* base, std::int64_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (aborted_) return "it was aborted";
    const ncclResult_t result = api_.enroll(comm_, base, static_cast<std::size_t>(bytes), &enrolled_);
    if (result != ncclSuccess && result != ncclInProgress) {
      enrolled_ = nullptr;
      return api_.error_string(result);
    }
  }
  settle("registering memory");
  return "";
}

void GroupMember::dismiss() {
  const std::scoped_lock lock(mutex_);
  graphs_.clear();
  if (comm_ && enrolled_) api_.dismiss(comm_, enrolled_);
  enrolled_ = nullptr;
}

// ---------------------------------------------------------------- operations

void GroupMember::prepare(std::span<const CommOp> ops, cudaStream_t stream) {
  if (ops.empty() || graphs_.contains(ops.data())) return;
  auto graph = std::make_unique<cuda::Graph>(
      stream, [&] { call("preparing operations", [&] { return enqueue(ops, target(stream)); }); });
  const std::scoped_lock lock(mutex_);
  if (!aborted_) graphs_[ops.data()] = std::move(graph);
}

void GroupMember::start(std::span<const CommOp> ops, cudaStream_t stream) {
  call("starting operations", [&] {
    const auto graph = graphs_.find(ops.data());
    if (graph == graphs_.end()) return enqueue(ops, target(stream));
    graph->second->run(stream);
    return ncclSuccess;
  });
  for (const CommOp& op : ops) {
    const Traffic traffic = traffic_of(op, rank_, size_);
    ++counters_.operations;
    counters_.bytes_sent += traffic.sent;
    counters_.bytes_received += traffic.received;
  }
}

// NCCL connects an operation by its size, and by the operations that it is grouped with.
void GroupMember::connect(std::span<const CommOp> ops, cudaStream_t stream) {
  for (const CommOp& op : ops)
    if (op.kind == CommKind::barrier)
      throw_error(ErrorCode::unsupported, "comm nccl: group '", name_, "': there is no ", name_of(op.kind));
  const auto try_them = [&](std::span<const CommOp> some) {
    call("connecting", [&] { return enqueue(some, target(stream)); });
    finish(stream);
  };
  for (std::size_t i = 0; i < ops.size(); ++i) try_them(ops.subspan(i, 1));
  if (ops.size() > 1) try_them(ops);
}

void GroupMember::finish(cudaStream_t stream) {
  for (int round = 0;; ++round) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady)
      throw_error(ErrorCode::internal, "comm nccl: group '", name_,
                  "': connecting: ", cudaGetErrorString(status));
    check();
    pause(round);
  }
}

}  // namespace prun::nccl
