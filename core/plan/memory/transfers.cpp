#include "plan/memory/transfers.hpp"

#include "base/narrow.hpp"

namespace prun {
namespace {

std::int32_t add_queue(const Work& work, std::string name, std::int64_t peer, Plan& plan) {
  plan.queues.push_back({std::move(name), false, work.axis, 0, peer, 0});
  return narrow<std::int32_t>(plan.queues.size()) - 1;
}

class Transfers {
 public:
  Transfers(const Program& program, const Work& work, Plan& plan)
      : program_(program), work_(work), plan_(plan) {}

  void of_chunk(const ChunkWork& work, Chunk& chunk) {
    if (chunk.stub >= 0) {
      chunk.receive = add(chunk.stub, FunctionKind::receive, work.stage - 1, work.from);
      chunk.send_gradient = add(chunk.stub, FunctionKind::send_gradient, work.stage - 1, work.from);
    }
    if (work.to >= 0 && work.to != work_.coordinate) {
      chunk.send = add(chunk.last - 1, FunctionKind::send, work.stage, work.to);
      chunk.receive_gradient = add(chunk.last - 1, FunctionKind::receive_gradient, work.stage, work.to);
    }
  }

 private:
  // Of what stage `stage` hands on, or of its gradient; -1 where there is none.
  std::int32_t add(std::int32_t instance, FunctionKind kind, std::int32_t stage, std::int64_t peer) {
    const Id segment = plan_.instances[instance].segment;
    const bool gradient = kind == FunctionKind::send_gradient || kind == FunctionKind::receive_gradient;
    const Id value =
        gradient ? program_.segment(segment).outgoing_gradient : program_.segment(segment).outgoing;
    if (value == none) return -1;
    PlannedStep step;
    step.exchange = exchange_of(value, kind, peer);
    step.operands.push_back({value, plan_.home(value)});
    PlannedFunction function;
    function.segment = segment;
    function.kind = kind;
    function.steps.push_back(std::move(step));
    const std::string queue =
        detail::concat(program_.mesh().name(work_.axis), gradient ? ".backward." : ".forward.", stage);
    function.pieces.push_back({0, 1, add_queue(work_, queue, peer, plan_)});
    plan_.functions.push_back(std::move(function));
    return narrow<std::int32_t>(plan_.functions.size()) - 1;
  }

  PlannedExchange exchange_of(Id value, FunctionKind kind, std::int64_t peer) const {
    const bool sends = kind == FunctionKind::send || kind == FunctionKind::send_gradient;
    PlannedExchange exchange;
    exchange.kind = sends ? CommKind::send : CommKind::recv;
    exchange.dtype = program_.value(value).dtype;
    exchange.count = program_.local_elements(value);
    exchange.peer = peer < work_.coordinate ? 0 : 1;
    (sends ? exchange.in : exchange.out) = plan_.home(value);
    return exchange;
  }

  const Program& program_;
  const Work& work_;
  Plan& plan_;
};

}  // namespace

void add_tie_queue(const Program& program, const Work& work, Plan& plan) {
  if (work.tied_to >= 0) add_queue(work, program.mesh().name(work.axis) + ".tie", work.tied_to, plan);
}

void plan_transfers(const Program& program, const Work& work, Plan& plan) {
  Transfers transfers(program, work, plan);
  for (std::size_t chunk = 0; chunk < plan.chunks.size(); ++chunk)
    transfers.of_chunk(work.chunks[chunk], plan.chunks[chunk]);
}

}  // namespace prun
