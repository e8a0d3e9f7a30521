// Collects the calls of a step in order, and the group that each belongs to. Example: pass_calls() adds
// gather, forward and offload of layer 3; overlap.hpp later regroups such groups over two steps.
#pragma once

#include <cstdint>

#include "plan/order/bundles.hpp"
#include "plan/order/slots.hpp"
#include "plan/plan.hpp"

namespace prun {

// Appends to plan.calls; each has the next position of its queue.
class CallList {
 public:
  explicit CallList(Plan& plan) : plan_(plan) {}

  // Sets the slots of the microbatch that the next calls are for.
  void hold(const Slots::Taken& held) { held_ = held; }
  const Slots::Taken& held() const { return held_; }
  void hold_carried(std::int32_t slot) { carried_ = slot; }

  // Adds one call for each piece of the function, or none if the segment has no such function.
  void add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch = -1);
  void add_function(std::int32_t function, std::int32_t instance, std::int32_t microbatch);
  void add_piece(const InstancePiece& piece, std::int32_t microbatch = -1);

  // Adds what a function computes before its exchanges; the next function adds, for each instance of a
  // bundle, what comes after them.
  void add_before_exchanges(FunctionKind kind, std::int32_t instance);
  void add_behind_exchanges(FunctionKind kind, const Bundle& bundle);
  // Adds each queue's exchanges at once, in an order that is right for every instance.
  void add_exchanges(FunctionKind kind, const Bundle& bundle);

 private:
  const PlannedFunction& function_at(std::int32_t function) const { return plan_.functions[function]; }
  void add_pieces(std::int32_t function, std::int32_t first, std::int32_t last, std::int32_t instance,
                  std::int32_t microbatch = -1);
  std::int32_t queue_of(const InstancePiece& piece) const;
  bool uses_stub(std::int32_t instance) const;

  Plan& plan_;
  Slots::Taken held_;
  std::int32_t carried_ = 0;
};

// Visits what a piece's steps read or write.
template <class Body>
void each_value(const Plan& plan, std::int32_t function, std::int32_t piece, Body&& body) {
  Call call;
  call.function = function;
  call.piece = piece;
  for (const PlannedStep& step : plan.steps(call))
    for (const PlannedOperand& operand : step.operands)
      if (operand.value != none) body(operand.value);
}

inline std::int32_t piece_count(const Plan& plan, std::int32_t function) {
  return static_cast<std::int32_t>(plan.functions[function].pieces.size());
}

}  // namespace prun
