#include "plan/function/function_queues.hpp"

#include <algorithm>
#include <limits>

#include "base/narrow.hpp"
#include "plan/function/function_order.hpp"
#include "plan/nominal_time.hpp"

namespace prun {
namespace {

// Returns the queue of that name, which is added if there is none.
std::int32_t queue_like(QueueInfo queue, std::vector<QueueInfo>& queues) {
  const auto found = std::find_if(queues.begin(), queues.end(), [&](const QueueInfo& other) {
    return other.name == queue.name && other.axis == queue.axis;
  });
  const auto at = narrow<std::int32_t>(found - queues.begin());
  if (found == queues.end()) queues.push_back(std::move(queue));
  return at;
}

// Returns the purpose of a communicator: exchanges that should not wait for each other have communicators of
// their own.
const char* purpose_of(FunctionKind kind) {
  if (kind == FunctionKind::reduce) return ".reduce";
  if (kind == FunctionKind::tie) return ".tie";
  if (kind == FunctionKind::gather || kind == FunctionKind::update || kind == FunctionKind::renew)
    return ".gather";
  return "";
}

// Says whether a step copies a value that is fetched, leaves, or is updated elsewhere.
bool moves(const Program& program, const Reach& reach, FunctionKind kind, const PlannedStep& step) {
  const Op& op = program.op(step.op);
  return op.def->copies &&
         (kind == FunctionKind::gather || kind == FunctionKind::reduce || kind == FunctionKind::put_away ||
          kind == FunctionKind::bring_back || (kind == FunctionKind::update && reach.crosses(op)));
}

// Returns the queue of a kernel. Copies that a device does for another's function, and copies of what is
// fetched or leaves, have a queue each way: a link carries both at once, and neither may delay what is
// loaded.
QueueInfo queue_of_kernel(const Program& program, const Reach& reach, FunctionKind kind,
                          const PlannedStep& step) {
  const bool own = step.device == reach.device() && !moves(program, reach, kind, step),
             workers = own && kind != FunctionKind::load;
  std::string name = workers ? "compute" : "copy";
  if (step.device > 0) name += detail::concat(".", step.device);
  if (!own) {
    const MemoryPlace to = reach.place_of(step.operands.back().value);
    const Space its_own = reach.device_at(step.device).tier ? Space::disk : Space::device;
    name += to == MemoryPlace{step.device, its_own} ? ".in" : ".out";
  }
  return {std::move(name), workers, no_axis, 0, -1, step.device};
}

QueueInfo queue_of_exchange(const Program& program, FunctionKind kind, const PlannedStep& step) {
  const AxisId axis = program.axis_of(step.op);
  return {program.mesh().name(axis) + purpose_of(kind), false, axis, 0, -1, 0};
}

// Returns the time of a step that ends a piece: such a step takes at least so long.
double much_of(const Program& program, const PlannedFunction& function) {
  constexpr double part = 1.0 / 16;
  double all = 0;
  for (const PlannedStep& step : function.steps)
    if (!step.exchange) all += nominal_seconds(program, step);
  return part * all;
}

}  // namespace

std::vector<Piece> divide_by_queue(const Program& program, const Reach& reach,
                                   const PlannedFunction& function, bool finely,
                                   std::vector<QueueInfo>& queues) {
  std::vector<Piece> pieces;
  const double much = finely ? much_of(program, function) : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < function.steps.size(); ++i) {
    const PlannedStep& step = function.steps[i];
    const std::int32_t queue =
        queue_like(step.exchange ? queue_of_exchange(program, function.kind, step)
                                 : queue_of_kernel(program, reach, function.kind, step),
                   queues);
    const auto at = static_cast<std::int32_t>(i);
    // An op that reads across ranks right behind an exchange does not need that one's result: the exchange is
    // for later ops, which wait for it themselves.
    const bool apart = (pieces.size() > 1 && looks_across(program, function.steps[pieces.back().first].op)) ||
                       (i > 0 && nominal_seconds(program, function.steps[i - 1]) >= much);
    if (pieces.empty() || pieces.back().queue != queue || apart) pieces.push_back({at, at, queue});
    pieces.back().last = at + 1;
  }
  return pieces;
}

}  // namespace prun
