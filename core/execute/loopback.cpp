#include "execute/loopback.hpp"

#include <cstring>

namespace prun {
namespace {

void copy(const CommOp& op, std::int64_t from_block, std::int64_t to_block) {
  const auto bytes = static_cast<std::size_t>(op.count * size_of(op.dtype));
  std::memmove(static_cast<std::byte*>(op.out) + static_cast<std::size_t>(to_block) * bytes,
               static_cast<const std::byte*>(op.in) + static_cast<std::size_t>(from_block) * bytes, bytes);
}

template <class T>
void fill(T* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(static_cast<float>(i * 40503 % 251 - 125) / 1000.0f);
}

void make_up(const CommOp& op) {
  if (op.dtype == DType::f64) fill(static_cast<double*>(op.out), op.count);
  if (op.dtype == DType::f32) fill(static_cast<float*>(op.out), op.count);
  if (op.dtype == DType::bf16) fill(static_cast<bf16*>(op.out), op.count);
  if (op.dtype == DType::f16) fill(static_cast<f16*>(op.out), op.count);
}

void loopback(const CommOp& op, std::int64_t members) {
  switch (op.kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter: return copy(op, 0, 0);
    case CommKind::all_gather:
      for (std::int64_t block = 0; block < members; ++block) copy(op, 0, block);
      return;
    case CommKind::all_to_all:
      for (std::int64_t block = 0; block < members; ++block) copy(op, block, block);
      return;
    case CommKind::broadcast:
    case CommKind::recv: return make_up(op);
    case CommKind::send:
    case CommKind::barrier: return;
  }
}

}  // namespace

Loopback::Loopback(const Plan& plan, const Mesh& mesh, std::int64_t rank) {
  for (const QueueInfo& queue : plan.queues)
    members_.push_back(static_cast<std::int64_t>(queue.members(mesh, rank).size()));
}

std::vector<QueueComm> Loopback::queues() {
  std::vector<QueueComm> queues(members_.size());
  for (std::size_t q = 0; q < queues.size(); ++q)
    if (members_[q] > 0) queues[q] = {this, &members_[q]};
  return queues;
}

Status Loopback::start(Communicator communicator, const CommOp* ops, std::int64_t count, void*) noexcept {
  for (std::int64_t i = 0; i < count; ++i) loopback(ops[i], *static_cast<const std::int64_t*>(communicator));
  return {};
}

Status Loopback::info(CommInfo* info) noexcept {
  *info = {};
  info->name = "echo";
  info->host_memory = true;
  return {};
}
Status Loopback::create(const CommGroup&, Communicator*) noexcept {
  return Status::failure(ErrorCode::unsupported, "an echo's communicators are made with it");
}
Status Loopback::destroy(Communicator) noexcept { return {}; }
Status Loopback::attach_memory(Communicator, void*, std::int64_t) noexcept { return {}; }
Status Loopback::detach_memory(Communicator) noexcept { return {}; }
Status Loopback::connect(Communicator, const CommOp*, std::int64_t, void*) noexcept { return {}; }
Status Loopback::prepare(Communicator, const CommOp*, std::int64_t, void*) noexcept { return {}; }
Status Loopback::finish(Communicator) noexcept { return {}; }
Status Loopback::abort(Communicator) noexcept { return {}; }
Status Loopback::counters(Communicator, CommCounters* counters) noexcept {
  *counters = {};
  return {};
}
Status Loopback::check(Communicator) noexcept { return {}; }
Status Loopback::needs(const CommOp&, std::int32_t, std::int32_t, CommNeeds* needs) noexcept {
  *needs = {};
  return {};
}

}  // namespace prun
