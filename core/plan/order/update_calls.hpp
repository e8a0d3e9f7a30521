// Calls of updates: behind the norm, or as gradients are complete where updates need nothing of it.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "plan/order/call_list.hpp"

namespace prun {

class UpdateCalls {
 public:
  // `bundles`: instances that exchange together as they are updated, as forward passes them. `together`: none
  // is updated before update_the_rest().
  UpdateCalls(const Plan& plan, std::span<const Bundle> bundles, bool together, CallList& calls);

  // The gradients of these are complete.
  void complete(const Bundle& bundle);
  // At the end of the step.
  void update_the_rest();

 private:
  bool need_nothing_of_the_norm() const;
  bool is_put_off(std::int32_t instance) const;
  bool is_updated_elsewhere(std::int32_t instance) const;
  bool exchanges_scratch(std::int32_t instance) const;
  void begin();
  void update(const Bundle& bundle);

  const Plan& plan_;
  std::span<const Bundle> bundles_;
  CallList& calls_;
  const bool are_free_;
  Bundle updated_;  // as forward passes them
  std::set<std::int32_t> left_;
  bool begun_ = false;
};

}  // namespace prun
