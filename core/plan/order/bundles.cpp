#include "plan/order/bundles.hpp"

#include <algorithm>
#include <numeric>

#include "base/narrow.hpp"

namespace prun {
namespace {

constexpr std::int64_t usual_bytes = std::int64_t{32} << 20, usual_share = 4;

// Returns the bytes that a function exchanges. If it exchanges none, returns those that it copies on other
// queues than the compute queue, without copies into its scratch, which only pass to a drive or back.
std::int64_t exchanged_bytes(const Plan& plan, const PlannedFunction& function) {
  std::int64_t exchanged = 0, moved = 0;
  for (const Piece& piece : function.pieces)
    for (std::int32_t s = piece.first; s < piece.last; ++s) {
      const PlannedStep& step = function.steps[s];
      if (step.exchange) exchanged += std::max(step.exchange->in.bytes, step.exchange->out.bytes);
      if (!step.exchange && !plan.queues[piece.queue].workers && function.kind != FunctionKind::update &&
          step.operands.back().address.region != function.scratch)
        moved += step.operands.front().address.bytes;
    }
  return exchanged > 0 ? exchanged : moved;
}

// Replaces addresses relative to a call by those of `instance`, since a joint function has several.
PlannedStep for_instance(PlannedStep step, std::int32_t instance) {
  const auto fix = [instance](Address& address) {
    PRUN_CHECK(address.whose != Whose::previous, "an exchange of what the instance before has");
    if (address.whose == Whose::own) address.instance = instance;
    address.whose = Whose::fixed;
  };
  for (PlannedOperand& operand : step.operands) fix(operand.address);
  for (Address& dead : step.dead_after) fix(dead);
  fix(step.exchange->in);
  fix(step.exchange->out);
  return step;
}

}  // namespace

Bundling::Bundling(const Plan& plan, FunctionKind kind, std::optional<std::int64_t> most) {
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    const std::int32_t function = plan.find(kind, static_cast<std::int32_t>(i));
    const bool here = function >= 0 && !plan.instances[i].is_stub();
    bytes_.push_back(here ? exchanged_bytes(plan, plan.functions[function]) : 0);
  }
  const std::int64_t all = std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
  most_ = most.value_or(std::min(usual_bytes, all / usual_share));
}

std::int64_t Bundling::bytes(const Bundle& bundle) const {
  std::int64_t bytes = 0;
  for (const std::int32_t instance : bundle) bytes += bytes_[instance];
  return bytes;
}

bool Bundling::takes(const Bundle& bundle) const { return bundle.size() < 2 || bytes(bundle) <= most_; }

std::vector<Bundle> Bundling::of(std::span<const std::int32_t> instances) const {
  std::vector<Bundle> bundles(1);
  for (const std::int32_t instance : instances) {
    bundles.back().push_back(instance);
    if (takes(bundles.back())) continue;
    bundles.back().pop_back();
    bundles.push_back({instance});
  }
  std::erase_if(bundles, [](const Bundle& bundle) { return bundle.empty(); });
  return bundles;
}

Exchanges exchanges_of(const Plan& plan, std::int32_t function) {
  const std::vector<Piece>& pieces = plan.functions[function].pieces;
  const auto exchanges = [&](const Piece& piece) { return plan.queues[piece.queue].communicates(); };
  const auto first = std::find_if(pieces.begin(), pieces.end(), exchanges);
  const auto last = std::find_if_not(first, pieces.end(), exchanges);
  return {narrow<std::int32_t>(first - pieces.begin()), narrow<std::int32_t>(last - pieces.begin())};
}

std::int32_t joint_function(Plan& plan, const std::vector<InstancePiece>& pieces) {
  const auto known = std::find_if(plan.functions.begin(), plan.functions.end(),
                                  [&](const PlannedFunction& function) { return function.joins == pieces; });
  if (known != plan.functions.end()) return narrow<std::int32_t>(known - plan.functions.begin());
  PlannedFunction joint;
  joint.joins = pieces;
  for (const InstancePiece& of : pieces) {
    const PlannedFunction& function = plan.functions[of.function];
    const Piece& piece = function.pieces[of.piece];
    if (joint.pieces.empty()) {
      joint.segment = function.segment;
      joint.kind = function.kind;
      joint.pieces.push_back({0, 0, piece.queue});
    }
    for (std::int32_t s = piece.first; s < piece.last; ++s)
      joint.steps.push_back(for_instance(function.steps[s], of.instance));
  }
  joint.pieces.front().last = narrow<std::int32_t>(joint.steps.size());
  plan.functions.push_back(std::move(joint));
  return narrow<std::int32_t>(plan.functions.size()) - 1;
}

}  // namespace prun
