#include "plan/order/call_list.hpp"

namespace prun {

void CallList::add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch) {
  add_function(plan_.find(kind, instance), instance, microbatch);
}

void CallList::add_function(std::int32_t function, std::int32_t instance, std::int32_t microbatch) {
  if (function >= 0) add_pieces(function, 0, piece_count(plan_, function), instance, microbatch);
}

void CallList::add_pieces(std::int32_t function, std::int32_t first, std::int32_t last, std::int32_t instance,
                          std::int32_t microbatch) {
  for (std::int32_t piece = first; piece < last; ++piece) add_piece({function, piece, instance}, microbatch);
}

void CallList::add_piece(const InstancePiece& piece, std::int32_t microbatch) {
  constexpr std::int32_t step_instance = 0;
  Call call;
  call.function = piece.function;
  call.piece = piece.piece;
  call.instance = piece.instance;
  call.microbatch = microbatch;
  if (microbatch >= 0 && piece.instance != step_instance) {
    call.slot = held_.slot;
    call.carried_slot = carried_;
    if (uses_stub(piece.instance)) call.stub_slot = held_.stub;
  }
  call.queue = queue_of(piece);
  call.position = plan_.queues[call.queue].calls++;
  plan_.calls.push_back(std::move(call));
}

bool CallList::uses_stub(std::int32_t instance) const {
  return plan_.instances[instance].is_stub() || plan_.instances[instance - 1].is_stub();
}

std::int32_t CallList::queue_of(const InstancePiece& piece) const {
  return function_at(piece.function).pieces[piece.piece].queue;
}

void CallList::add_before_exchanges(FunctionKind kind, std::int32_t instance) {
  const std::int32_t function = plan_.find(kind, instance);
  add_pieces(function, 0, exchanges_of(plan_, function).first, instance);
}

void CallList::add_behind_exchanges(FunctionKind kind, const Bundle& bundle) {
  for (const std::int32_t i : bundle) {
    const std::int32_t function = plan_.find(kind, i);
    add_pieces(function, exchanges_of(plan_, function).last, piece_count(plan_, function), i);
  }
}

void CallList::add_exchanges(FunctionKind kind, const Bundle& bundle) {
  std::vector<std::vector<InstancePiece>> left;  // pieces by instance, the next one last
  for (const std::int32_t i : bundle) {
    const std::int32_t function = plan_.find(kind, i);
    const Exchanges exchanges = exchanges_of(plan_, function);
    left.emplace_back();
    for (std::int32_t piece = exchanges.last; piece-- > exchanges.first;)
      left.back().push_back({function, piece, i});
  }
  for (;;) {
    std::erase_if(left, [](const std::vector<InstancePiece>& pieces) { return pieces.empty(); });
    if (left.empty()) return;
    const std::int32_t queue = queue_of(left.front().back());
    std::vector<InstancePiece> at_once;
    for (std::vector<InstancePiece>& pieces : left)
      if (queue_of(pieces.back()) == queue) {
        at_once.push_back(pieces.back());
        pieces.pop_back();
      }
    const InstancePiece first = at_once.front();
    add_piece(at_once.size() == 1 ? first : InstancePiece{joint_function(plan_, at_once), 0, first.instance});
  }
}

}  // namespace prun
