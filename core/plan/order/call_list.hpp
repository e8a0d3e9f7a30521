// Appends calls to a plan, so that the code that decides their order need not know queues, slots and pieces.
// Example: add(forward, 3, 0) appends one call for each piece of layer 3's forward, with the slot of
// microbatch 0 and the next position of its queue.
#pragma once

#include <cstdint>

#include "plan/order/bundles.hpp"
#include "plan/order/slots.hpp"
#include "plan/plan.hpp"

namespace prun {

class CallList {
 public:
  explicit CallList(Plan& plan) : plan_(plan) {}

  // Sets the slots that the next calls have: those of their microbatch.
  void hold(const Slots::Taken& held) { held_ = held; }
  const Slots::Taken& held() const { return held_; }
  void hold_carried(std::int32_t slot) { carried_ = slot; }

  // Adds one call for each piece of the function, or none if the segment has no such function.
  void add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch = -1);
  void add_function(std::int32_t function, std::int32_t instance, std::int32_t microbatch);
  void add_piece(const InstancePiece& piece, std::int32_t microbatch = -1);

  // Adds the pieces of a function before its collectives; the next one adds those after them, for each
  // instance of a bundle.
  void add_before_exchanges(FunctionKind kind, std::int32_t instance);
  void add_behind_exchanges(FunctionKind kind, const Bundle& bundle);
  // Adds the collectives of a bundle: one call for the pieces of all instances that come next on a queue.
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

// Calls body(value) for each value that a piece reads or writes, as often as it does.
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
