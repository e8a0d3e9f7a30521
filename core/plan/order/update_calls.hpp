// Adds calls of updates: after the norm or, if updates do not depend on it, as gradients are complete. If
// they depend on it, some instances may be updated before it is known (`speculate`), and corrected later
// (`settle`). Example: without clipping, layer 3 is updated on the host during backward of layer 2.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "plan/order/call_list.hpp"

namespace prun {

class UpdateCalls {
 public:
  // `bundles`: instances whose updates share collectives, in the order of forward. `together`: no update
  // comes before update_the_rest(). `speculated`: at most so many are updated before the norm is known.
  UpdateCalls(const Plan& plan, std::span<const Bundle> bundles, bool together, std::int32_t speculated,
              CallList& calls);

  // Call it when the gradients of these instances are complete; adds the updates that can begin.
  void complete(const Bundle& bundle);
  // Adds all other updates; call it at the end of the step.
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
