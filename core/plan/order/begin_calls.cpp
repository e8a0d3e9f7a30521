#include "plan/order/begin_calls.hpp"

#include <utility>

namespace prun {

void BeginCalls::begin() {
  constexpr std::int32_t step_instance = 0;
  const std::int32_t function = plan_.find(FunctionKind::begin, step_instance);
  if (function < 0) return;
  const std::int32_t behind = exchanges_of(plan_, function).last;
  for (std::int32_t piece = 0; piece < behind; ++piece) calls_.add_piece({function, piece, step_instance});
  for (std::int32_t piece = behind; piece < piece_count(plan_, function); ++piece) {
    put_off_.push_back({function, piece, step_instance});
    each_value(plan_, function, piece, [&](Id value) { values_.insert(value); });
  }
}

void BeginCalls::finish_for(const PassCall& call) {
  if (!put_off_.empty() && is_needed_by(call)) finish();
}

void BeginCalls::finish() {
  for (const InstancePiece& piece : std::exchange(put_off_, {})) calls_.add_piece(piece);
}

bool BeginCalls::is_needed_by(const PassCall& call) const {
  bool needed = false;
  for (std::int32_t piece = 0; piece < piece_count(plan_, call.function); ++piece)
    each_value(plan_, call.function, piece, [&](Id value) { needed |= values_.contains(value); });
  return needed;
}

}  // namespace prun
