// Adds the calls that a step begins with.
#pragma once

#include <set>
#include <vector>

#include "plan/order/call_list.hpp"
#include "plan/order/pass_calls.hpp"

namespace prun {

// Puts off what comes behind the exchange of `begin` until a pass touches the same values: no pass waits for
// it before.
class BeginCalls {
 public:
  BeginCalls(const Plan& plan, CallList& calls) : plan_(plan), calls_(calls) {}

  void begin();
  // Adds what this call needs; it is called before a call of a pass.
  void finish_for(const PassCall& call);
  void finish();

 private:
  bool is_needed_by(const PassCall& call) const;

  const Plan& plan_;
  CallList& calls_;
  std::vector<InstancePiece> put_off_;
  std::set<Id> values_;  // values that the delayed ops touch
};

}  // namespace prun
