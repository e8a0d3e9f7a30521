// Adds calls that sum gradients over the ranks and take their norm, as they are complete.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/order/call_list.hpp"
#include "plan/order/contributions.hpp"
#include "plan/order/update_calls.hpp"

namespace prun {

class GradientCalls {
 public:
  // `bundles` has instances whose gradients are summed together, in the order in which they are complete.
  GradientCalls(const Plan& plan, const Work& work, std::span<const Bundle> bundles, CallList& calls,
                UpdateCalls& updates);

  // Empties, when the step begins, the gradients that are not emptied later.
  void clear();
  // These frame each call of a pass.
  void before(const PassCall& call, Pass pass);
  void behind(const PassCall& call, std::int32_t microbatch);

  // Sums tied gradients after all passes. Two ranks exchange them, each after its own last pass: at the end,
  // where neither delays the other.
  void sum_tied();
  // Completes tied gradients; it is called after sum_tied().
  void complete_tied();
  // Measures the gradients that were summed first first: they do not wait for the last.
  void measure();

 private:
  void complete(std::int32_t instance);
  void finish_pending();

  const Plan& plan_;
  std::span<const Bundle> bundles_;
  CallList& calls_;
  UpdateCalls& updates_;
  Contributions contributions_;
  std::vector<std::int32_t> summed_;  // summed instances; later ones are further behind
  std::size_t next_ = 0;              // number of the next bundle
  Bundle pending_;                    // bundle whose reduction is not finished
};

}  // namespace prun
