#include "plan/function.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace prun {

// Largest first, each at the lowest offset that is free for as long as it lives.
std::int64_t pack(std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<const Lifetime*> placed;  // by offset
  std::int64_t total = 0;
  for (std::size_t index : order) {
    Lifetime& one = lifetimes[index];
    const std::int64_t bytes = align(one.bytes);
    one.offset = 0;
    for (const Lifetime* other : placed) {
      if (other->last < one.first || one.last < other->first) continue;
      if (one.offset + bytes <= other->offset) break;
      one.offset = std::max(one.offset, other->offset + align(other->bytes));
    }
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &one,
                         [](const Lifetime* a, const Lifetime* b) { return a->offset < b->offset; }),
        &one);
    total = std::max(total, one.offset + bytes);
  }
  return total;
}

namespace {

class FunctionPlanner {
 public:
  FunctionPlanner(const Program& program, const Lowering& lowering, const Homes& homes, Id segment,
                  FunctionKind kind)
      : program_(program), lowering_(lowering), homes_(homes) {
    function_.segment = segment;
    function_.kind = kind;
  }

  PlannedFunction run() {
    for (Id op : program_.segment(function_.segment).ops(function_.kind)) add_step(op);
    function_.scratch_bytes = pack(lifetimes_);
    for (PlannedStep& step : function_.steps) place_scratch(step);
    return std::move(function_);
  }

 private:
  void add_step(Id id) {
    const Op& op = program_.op(id);
    PlannedStep step;
    step.op = id;
    const OpShape shape = program_.shape(op);
    const std::int64_t workspace = choose_kernel(op, shape, step);
    const auto at = static_cast<std::int32_t>(function_.steps.size());
    for (Id value : op.operands) {
      step.operands.push_back({value, {}});
      if (value != none) add_operand(step.operands.back(), at);
    }
    if (workspace > 0) {
      workspaces_[at] = lifetimes_.size();
      lifetimes_.push_back({workspace, at, at, -1});
    }
    raise(op.def->cost(&shape, &function_.cost));
    function_.steps.push_back(std::move(step));
  }

  std::int64_t choose_kernel(const Op& op, const OpShape& shape, PlannedStep& step) {
    const KernelDef* def = lowering_.kernel(op.kind());
    if (def) step.kernel = def->select(shape);
    if (!step.kernel) {
      std::ostringstream types;
      for (int i = 0; i < shape.count; ++i)
        if (shape.operand[i].present) types << (i ? ", " : "") << name_of(shape.operand[i].dtype);
      throw_error(ErrorCode::unsupported, "device '", lowering_.device, "' has no kernel for op '", op.kind(),
                  "' on (", types.str(), ")",
                  def ? "; choose another precision" : "; load a plugin that brings one");
    }
    return def->workspace ? def->workspace(shape, lowering_.threads) : 0;
  }

  void add_operand(PlannedOperand& operand, std::int32_t at) {
    const auto home = homes_.of.find(operand.value);
    if (home != homes_.of.end()) {
      operand.address = home->second;
      function_.uses_batch |=
          operand.address.region == Region::batch || operand.address.region == Region::scalars;
      function_.uses_inputs |= operand.address.region == Region::input;
      return;
    }
    const auto [entry, fresh] = scratch_.try_emplace(operand.value, lifetimes_.size());
    if (fresh) lifetimes_.push_back({program_.value(operand.value).bytes(), at, at, -1});
    lifetimes_[entry->second].last = at;
  }

  void place_scratch(PlannedStep& step) {
    const auto at = static_cast<std::int32_t>(&step - function_.steps.data());
    for (PlannedOperand& operand : step.operands) {
      if (operand.value == none || homes_.of.count(operand.value)) continue;
      const Lifetime& lifetime = lifetimes_[scratch_.at(operand.value)];
      operand.address = {Region::scratch, Whose::own, -1, lifetime.offset, lifetime.bytes};
      if (lifetime.last == at) step.dead_after.push_back(operand.address);
    }
    if (const auto found = workspaces_.find(at); found != workspaces_.end()) {
      const Lifetime& lifetime = lifetimes_[found->second];
      step.workspace = {Region::scratch, Whose::own, -1, lifetime.offset, lifetime.bytes};
      step.dead_after.push_back(step.workspace);
    }
  }

  const Program& program_;
  const Lowering& lowering_;
  const Homes& homes_;
  PlannedFunction function_;
  std::vector<Lifetime> lifetimes_;
  std::map<Id, std::size_t> scratch_;
  std::map<std::int32_t, std::size_t> workspaces_;
};

}  // namespace

PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& homes,
                              Id segment, FunctionKind kind) {
  return FunctionPlanner(program, lowering, homes, segment, kind).run();
}

}  // namespace prun
