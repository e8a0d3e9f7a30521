#include "enqueue.hpp"

namespace prun::nccl {
namespace {

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

}  // namespace prun::nccl
