#include "check_op.hpp"

namespace prun::ucx {
namespace {

bool is_pair(CommKind kind) { return kind == CommKind::send || kind == CommKind::recv; }

}  // namespace

void check_op(const CommOp& op, const std::string& group, std::int32_t rank, std::int32_t size) {
  PRUN_CHECK(static_cast<int>(op.kind) < comm_kinds, group, ": no operation of number ",
             static_cast<int>(op.kind));
  if (op.kind == CommKind::barrier) return;
  PRUN_CHECK(op.count >= 0, group, ": ", name_of(op.kind), " of ", op.count, " elements");
  if (is_pair(op.kind) || op.kind == CommKind::broadcast)
    PRUN_CHECK(op.peer >= 0 && op.peer < size && (op.peer != rank || !is_pair(op.kind)), group, ": ",
               name_of(op.kind), " on member ", rank, " of ", size, " with member ", op.peer);
  const bool reads = op.kind != CommKind::recv && op.kind != CommKind::broadcast;
  const bool writes = op.kind != CommKind::send;
  PRUN_CHECK(op.count == 0 || ((!reads || op.in) && (!writes || op.out)), group, ": ", name_of(op.kind),
             " without memory");
}

}  // namespace prun::ucx
