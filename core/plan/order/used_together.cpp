#include "plan/order/used_together.hpp"

#include <algorithm>
#include <utility>

#include "plan/order/contributions.hpp"
#include "plan/order/pass_calls.hpp"

namespace prun {

namespace {

Bundle both_of(Bundle bundle, const Bundle& more) {
  for (const std::int32_t i : more)
    if (std::find(bundle.begin(), bundle.end(), i) == bundle.end()) bundle.push_back(i);
  return bundle;
}

// Joins consecutive calls into uses as long as the gathered parameters of two neighbouring uses need no more
// memory than two bundles, or than the two neighbouring calls that need most.
class Uses {
 public:
  Uses(std::vector<Bundle> calls, const Bundling& bundling)
      : calls_(std::move(calls)), bundling_(bundling), room_(2 * bundling.most()) {
    for (std::size_t i = 1; i < calls_.size(); ++i) room_ = std::max(room_, bytes(calls_[i - 1], calls_[i]));
  }

  GatheredUses run() {
    GatheredUses uses;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Bundle before = uses.size() > 1 ? uses[uses.size() - 2].instances : Bundle{};
      if (uses.empty() || !may_join(before, uses.back().instances, i))
        uses.push_back({calls_[i], 1});
      else
        uses.back() = {both_of(std::move(uses.back().instances), calls_[i]), uses.back().calls + 1};
    }
    return uses;
  }

 private:
  std::int64_t bytes(const Bundle& a, const Bundle& b) const { return bundling_.bytes(both_of(a, b)); }

  bool may_join(const Bundle& before, const Bundle& use, std::size_t call) const {
    const Bundle both = both_of(use, calls_[call]);
    if (both.size() == use.size()) return true;
    const Bundle after = call + 1 < calls_.size() ? calls_[call + 1] : Bundle{};
    return bundling_.takes(both) && bytes(before, both) <= room_ && bytes(both, after) <= room_;
  }

  std::vector<Bundle> calls_;  // instances that each call touches
  const Bundling& bundling_;
  std::int64_t room_;
};

}  // namespace

GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling) {
  const TouchedGathered touched(plan);
  std::vector<Bundle> calls;
  for (const ScheduleCall& pass : work.calls)
    for (const PassCall& call : functions_of(plan, pass))
      if (Bundle instances = touched.by(call); !instances.empty()) calls.push_back(std::move(instances));
  return Uses(std::move(calls), bundling).run();
}

std::vector<std::int32_t> renewed_in_order(const Plan& plan, const GatheredUses& uses) {
  std::vector<std::int32_t> renewed;
  for (const GatheredUse& use : uses)
    for (const std::int32_t i : use.instances)
      if (plan.find(FunctionKind::renew, i) >= 0 &&
          std::find(renewed.begin(), renewed.end(), i) == renewed.end())
        renewed.push_back(i);
  return renewed;
}

std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling) {
  Contributions contributions(plan, work);
  std::vector<Bundle> reduced;
  const auto reduces = [&](std::int32_t i) { return plan.find(FunctionKind::reduce, i) >= 0; };
  const auto add = [&](const std::vector<std::int32_t>& complete) {
    for (Bundle& bundle : bundling.of(complete)) reduced.push_back(std::move(bundle));
  };
  for (const ScheduleCall& pass : work.calls) {
    std::vector<std::int32_t> complete;
    for (const PassCall& call : functions_of(plan, pass))
      for (const std::int32_t i : contributions.completed_by(call, pass.microbatch))
        if (reduces(i)) complete.push_back(i);
    add(complete);
  }
  std::vector<std::int32_t> tied;
  for (std::size_t i = 0; i < plan.instances.size(); ++i)
    if (const auto at = static_cast<std::int32_t>(i);
        !plan.instances[i].is_stub() && plan.find(FunctionKind::tie, at) >= 0 && reduces(at))
      tied.push_back(at);
  add(tied);
  return reduced;
}

}  // namespace prun
