#include "plan/memory/memory.hpp"

#include "base/narrow.hpp"
#include "plan/carried_spans.hpp"

namespace prun {
namespace {

std::int32_t add_queue(const Work& work, std::string name, std::int64_t peer, Plan& plan) {
  plan.queues.push_back({std::move(name), false, work.axis, 0, peer, 0});
  return narrow<std::int32_t>(plan.queues.size()) - 1;
}

class Transfers {
 public:
  Transfers(const Program& program, const Work& work, Plan& plan)
      : program_(program), work_(work), plan_(plan), spans_(carried_spans(program)) {}

  void of_chunk(const ChunkWork& work, Chunk& chunk) {
    if (chunk.stub >= 0) {
      chunk.receive = add(chunk.stub, FunctionKind::receive, work.stage - 1, work.from,
                          carried(work, &CarriedSpan::arrives, &CarriedValue::value));
      chunk.send_gradient = add(chunk.stub, FunctionKind::send_gradient, work.stage - 1, work.from,
                                carried(work, &CarriedSpan::gradient_leaves, &CarriedValue::gradient));
    }
    if (work.to >= 0 && work.to != work_.coordinate) {
      chunk.send = add(chunk.last - 1, FunctionKind::send, work.stage, work.to,
                       carried(work, &CarriedSpan::leaves, &CarriedValue::value));
      chunk.receive_gradient = add(chunk.last - 1, FunctionKind::receive_gradient, work.stage, work.to,
                                   carried(work, &CarriedSpan::gradient_arrives, &CarriedValue::gradient));
    }
  }

 private:
  std::vector<Id> carried(const ChunkWork& chunk,
                          bool (CarriedSpan::*goes)(const Work&, const ChunkWork&) const,
                          Id CarriedValue::*what) const {
    std::vector<Id> values;
    for (const CarriedSpan& span : spans_)
      if (span.of.*what != none && (span.*goes)(work_, chunk)) values.push_back(span.of.*what);
    return values;
  }

  // Adds the transfer of the output of stage `stage`, or of its gradient, and of what is carried beside it;
  // returns -1 if there is none.
  std::int32_t add(std::int32_t instance, FunctionKind kind, std::int32_t stage, std::int64_t peer,
                   const std::vector<Id>& beside) {
    const Id segment = plan_.instances[instance].segment;
    const bool gradient = kind == FunctionKind::send_gradient || kind == FunctionKind::receive_gradient;
    const Id value =
        gradient ? program_.segment(segment).outgoing_gradient : program_.segment(segment).outgoing;
    if (value == none) return -1;
    PlannedFunction function;
    function.segment = segment;
    function.kind = kind;
    function.steps.push_back(step_of(value, kind, peer));
    for (const Id also : beside) function.steps.push_back(step_of(also, kind, peer));
    const std::string queue =
        detail::concat(program_.mesh().name(work_.axis), gradient ? ".backward." : ".forward.", stage);
    const auto steps = narrow<std::int32_t>(function.steps.size());
    function.pieces.push_back({0, steps, add_queue(work_, queue, peer, plan_)});
    plan_.functions.push_back(std::move(function));
    return narrow<std::int32_t>(plan_.functions.size()) - 1;
  }

  PlannedStep step_of(Id value, FunctionKind kind, std::int64_t peer) const {
    PlannedStep step;
    step.exchange = exchange_of(value, kind, peer);
    step.operands.push_back({value, plan_.home(value)});
    return step;
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
  const std::vector<CarriedSpan> spans_;
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
