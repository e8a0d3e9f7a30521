#include "execute/binding.hpp"

#include <algorithm>

#include "execute/plan_memory.hpp"
#include "plan/bound_calls.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- binding

std::uint32_t changed_operands(const Op& op) {
  std::uint32_t changed = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.access(i) != Access::read) changed |= 1u << i;
  return changed;
}

}  // namespace

const BoundPiece& Binding::bind(const Call& call, int side) {
  std::unique_ptr<BoundPiece>& entry = bound_[bound_key(plan_, call, side)];
  if (entry) return *entry;
  entry = std::make_unique<BoundPiece>();
  const std::span<const PlannedStep> steps = plan_.steps(call);
  entry->launches.reserve(static_cast<std::size_t>(
      std::count_if(steps.begin(), steps.end(), [](const PlannedStep& step) { return !step.exchange; })));
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const PlannedStep& step = steps[s];
    if (step.exchange)
      bind_exchange(call, step, side, *entry);
    else
      entry->launches.push_back(bind_step(call, step, call.first_of(s), side));
    if (!poison_) continue;
    entry->dead.emplace_back();
    for (const Address& dead : step.dead_after) entry->dead.back().push_back(bytes_at(call, dead, side));
    entry->fences.emplace_back();
    for (const Fence& fence : step.fences) entry->fences.back().push_back(bytes_at(call, fence.bytes, side));
  }
  return *entry;
}

std::span<std::byte> Binding::bytes_at(const Call& call, const Address& address, int side) const {
  return {memory_.at(plan_.resolve(call, address, side)), static_cast<std::size_t>(address.bytes)};
}

Launch Binding::bind_step(const Call& call, const PlannedStep& step, std::uint32_t first, int side) {
  std::vector<Tensor>& operands = tensors_.emplace_back();
  operands.reserve(step.operands.size());
  for (const PlannedOperand& operand : step.operands) {
    Tensor& tensor = operands.emplace_back();
    if (operand.value == none) continue;
    const std::vector<Dim> dims = program_.local_dims(operand.value);
    const std::vector<std::int64_t> starts = program_.starts(operand.value, rank_);
    tensor.data = memory_.at(plan_.resolve(call, operand.address, side));
    tensor.dtype = program_.value(operand.value).dtype;
    tensor.rank = static_cast<std::int32_t>(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d) {
      tensor.dim[d] = dims[d].extent;
      tensor.start[d] = starts[d];
    }
  }
  Launch launch;
  launch.kernel = step.kernel;
  launch.op = program_.op(step.op).kind();
  launch.args.operands = operands.data();
  launch.args.first = first;
  launch.args.operand_count = static_cast<std::int32_t>(operands.size());
  launch.args.attrs = program_.op(step.op).attrs.data();
  launch.args.changes = changed_operands(program_.op(step.op));
  launch.args.workspace =
      step.workspace.bytes ? memory_.at(plan_.resolve(call, step.workspace, side)) : nullptr;
  launch.args.workspace_bytes = step.workspace.bytes;
  launch.args.layer = plan_.instances[call.instance].layer;
  pass_update_settings(launch.args, program_.op(step.op));
  return launch;
}

void Binding::pass_update_settings(KernelArgs& args, const Op& op) {
  if (!is_update(op.function) || op.operands.front() == none) return;
  auto elements = updated_elements(program_, rank_, op.operands.front(), args.layer);
  if (!elements) return;
  updates_.push_back(std::move(*elements));
  args.updates = updates_.back().data();
  args.update_count = static_cast<std::int32_t>(updates_.back().size());
}

void Binding::bind_exchange(const Call& call, const PlannedStep& step, int side, BoundPiece& piece) const {
  const PlannedExchange& exchange = *step.exchange;
  const auto at = [&](const Address& address, std::int64_t i) {
    std::byte* const all = address.bytes > 0 ? memory_.at(plan_.resolve(call, address, side)) : nullptr;
    return all ? all + i * (address.bytes / exchange.pieces) : nullptr;
  };
  CommOp op;
  op.kind = exchange.kind;
  op.reduction = exchange.reduction;
  op.dtype = exchange.dtype;
  op.peer = exchange.peer;
  op.count = exchange.count / exchange.pieces;
  if (exchange.distance == 0) {
    for (std::int64_t i = 0; i < exchange.pieces; ++i) {
      op.in = at(exchange.in, i);
      op.out = at(exchange.out, i);
      piece.exchanges.push_back(op);
    }
  } else {
    const AxisId axis = program_.axis_of(step.op);
    for (const ShiftedPiece& one :
         shifted_pieces(exchange, program_.mesh().coordinate(rank_, axis), program_.mesh().extent(axis))) {
      op.kind = one.kind;
      op.peer = one.peer;
      op.in = one.kind == CommKind::send ? at(exchange.in, one.piece) : nullptr;
      op.out = one.kind == CommKind::recv ? at(exchange.out, one.piece) : nullptr;
      piece.exchanges.push_back(op);
    }
  }
  piece.ends.push_back(piece.exchanges.size());
}

// ------------------------------------------------------------------- steps

void Steps::start(Iteration iteration) {
  PRUN_CHECK(iteration.ended > 0 || steps_ - finished_ < running_, "step ", steps_,
             " would write where step ", finished_, " reads");
  const std::int64_t step = iteration.ended > 0 ? steps_ + iteration.ended - 1 : steps_++;
  runs_[static_cast<std::size_t>(iterations_) % runs_.size()] = {iteration, step};
  may_run_.store(++iterations_);
  may_run_.notify_all();
}

std::int64_t Steps::finish() {
  while (run(looked_at_).iteration.ended > 0) ++looked_at_;
  ++finished_;
  return looked_at_++;
}

void Steps::end() {
  may_run_.store(~iterations_);
  may_run_.notify_all();
}

bool Steps::may_run(std::int64_t iteration) const {
  std::int64_t started = may_run_.load();
  while (started >= 0 && started <= iteration) {
    may_run_.wait(started);
    started = may_run_.load();
  }
  return iteration < std::max(started, ~started);
}

}  // namespace prun
