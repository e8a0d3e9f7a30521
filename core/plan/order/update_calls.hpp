// Adds calls of updates: behind the norm, or as gradients are complete if updates need nothing of it. If they
// do, those of some instances may begin before it is known, by functions `speculate` and `settle`.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "plan/order/call_list.hpp"

namespace prun {

class UpdateCalls {
 public:
  // `bundles` lists instances that exchange together as they are updated, in the order of forward. `together`
  // says that none is updated before update_the_rest(). At most
  // `speculated` instances are updated speculatively.
  UpdateCalls(const Plan& plan, std::span<const Bundle> bundles, bool together, std::int32_t speculated,
              CallList& calls);

  // Says that the gradients of these instances are complete.
  void complete(const Bundle& bundle);
  // Updates the others, at the end of the step.
  void update_the_rest();

 private:
  bool need_nothing_of_the_norm() const;
  bool is_put_off(std::int32_t instance) const;
  bool is_updated_elsewhere(std::int32_t instance) const;
  bool reads_arrived(std::int32_t instance) const;
  bool exchanges_scratch(std::int32_t instance) const;
  void speculate(const Bundle& bundle);
  void begin_speculation();
  void begin();
  void update(Bundle bundle);

  const Plan& plan_;
  std::span<const Bundle> bundles_;
  CallList& calls_;
  const bool are_free_;
  Bundle updated_;  // instances in the order of forward
  std::set<std::int32_t> left_;
  std::int32_t may_speculate_;         // number of further instances that may be updated speculatively
  std::set<std::int32_t> speculated_;  // instances that are
  bool begun_ = false, begun_speculation_ = false;
};

}  // namespace prun
