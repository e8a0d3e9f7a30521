#include "inspect/memory_use.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/call_text.hpp"

namespace prun {
namespace {

using Alive = std::pair<std::int32_t, std::int32_t>;  // instance, microbatch

bool is_backward(FunctionKind kind) {
  return kind == FunctionKind::backward || kind == FunctionKind::backward_weight;
}

// Returns the bytes that an instance keeps of one microbatch.
std::int64_t kept_bytes(const Plan& plan, std::int32_t instance) {
  std::int64_t bytes = 0;
  for (const Layout::Range& range : plan.layout.ranges)
    for (const Region region : {Region::slot, Region::boundary}) {
      const auto& placed = range.instances[static_cast<std::size_t>(region)];
      if (const auto at = static_cast<std::size_t>(instance); at < placed.size()) bytes += placed[at].stride;
    }
  return bytes;
}

std::int64_t scratch_bytes(const PlannedFunction& function) {
  return std::accumulate(function.scratch_bytes.begin(), function.scratch_bytes.end(), std::int64_t{0});
}

bool comes_and_goes(Region region) {
  return region == Region::slot || region == Region::boundary || region == Region::scratch;
}

// Returns, by instance and microbatch, the last call that reads what was kept of it.
std::map<Alive, std::size_t> last_uses(const Plan& plan) {
  std::map<Alive, std::size_t> last;
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const Call& call = plan.calls[i];
    if (is_backward(plan.functions[static_cast<std::size_t>(call.function)].kind))
      last[{call.instance, call.microbatch}] = i;
  }
  return last;
}

std::vector<PeakTensor> tensors_of(const Program& program, const PlannedFunction& function) {
  std::map<Id, PeakTensor> found;
  std::int64_t workspace = 0;
  for (const PlannedStep& step : function.steps) {
    workspace = std::max(workspace, step.workspace.bytes);
    for (const PlannedOperand& operand : step.operands)
      if (operand.value != none)
        found[operand.value] = {program.value(operand.value).name, name_of(operand.address.region),
                                operand.address.bytes};
  }
  std::vector<PeakTensor> tensors;
  for (auto& [id, tensor] : found) tensors.push_back(std::move(tensor));
  if (workspace > 0) tensors.push_back({"workspace of kernels", name_of(Region::scratch), workspace});
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const PeakTensor& a, const PeakTensor& b) { return a.bytes > b.bytes; });
  return tensors;
}

}  // namespace

MemoryUse memory_use(const Assembly& assembly, std::int64_t rank) {
  const Plan& plan = assembly.plan_of(rank);
  MemoryUse use;
  for (int region = 0; region < regions; ++region)
    if (!comes_and_goes(static_cast<Region>(region)))
      use.always += plan.layout.memory.bytes[static_cast<std::size_t>(region)];
  const std::map<Alive, std::size_t> last = last_uses(plan);
  std::map<Alive, std::int64_t> alive;
  std::int64_t saved = 0;
  std::size_t peak_call = 0;
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const Call& call = plan.calls[i];
    const PlannedFunction& function = plan.functions[static_cast<std::size_t>(call.function)];
    const Alive key{call.instance, call.microbatch};
    if (function.kind == FunctionKind::forward && alive.count(key) == 0 && last.count(key) != 0)
      saved += alive[key] = kept_bytes(plan, call.instance);
    if (!plan.queues[static_cast<std::size_t>(call.queue)].communicates()) {
      use.moments.push_back({call_text(assembly.program(), plan, call), saved, scratch_bytes(function)});
      if (use.at(use.moments.size() - 1) > use.at(use.peak)) use.peak = use.moments.size() - 1;
      if (use.peak + 1 == use.moments.size()) peak_call = i;
    }
    if (const auto ends = last.find(key); ends != last.end() && ends->second == i && alive.count(key) != 0) {
      saved -= alive[key];
      alive.erase(key);
    }
  }
  if (!plan.calls.empty())
    use.tensors = tensors_of(assembly.program(),
                             plan.functions[static_cast<std::size_t>(plan.calls[peak_call].function)]);
  return use;
}

}  // namespace prun
