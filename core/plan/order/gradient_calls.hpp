// Calls that sum gradients over the ranks and take their norm, as they are complete.
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

  // When the step begins: empties those that nobody empties later.
  void clear();
  // These frame each call of a pass.
  void before(const PassCall& call, Pass pass);
  void behind(const PassCall& call, std::int32_t microbatch);

  // Is called after all passes. Two ranks exchange what is tied, each after its own last pass: at the end,
  // where neither holds the other up.
  void sum_tied();
  // Is called after that.
  void complete_tied();
  // Those that were summed first come first: they do not wait for the last.
  void measure();

 private:
  void complete(std::int32_t instance);
  void finish_pending();

  const Plan& plan_;
  std::span<const Bundle> bundles_;
  CallList& calls_;
  UpdateCalls& updates_;
  Contributions contributions_;
  std::vector<std::int32_t> summed_;  // all instances; later ones are further behind
  std::size_t next_ = 0;              // of the bundles
  Bundle pending_;                    // the rest of its reduction
};

}  // namespace prun
