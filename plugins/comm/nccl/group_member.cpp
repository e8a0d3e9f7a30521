#include "group_member.hpp"

#include <chrono>
#include <thread>

#include "traffic.hpp"

namespace prun::nccl {
namespace {

// What NCCL does behind a call takes some ten microseconds, or as long as the other members do.
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

// What NCCL refuses before it has begun can be mended; whatever else goes wrong ends the group.
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

// What an operation is connected by depends on its size, and on what it is grouped with.
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
