#include "plan/proof/check_ranks.hpp"

#include <algorithm>
#include <map>

#include "base/sha256.hpp"

namespace prun {
namespace {

// One collective as a member requests it.
struct Asked {
  CommKind kind;
  Reduction reduction;
  DType dtype;
  std::int64_t count;
  std::int32_t microbatch;  // of a transfer between stages; otherwise -1
  std::int32_t step;        // step in the row
  std::int64_t distance;    // of a shift; otherwise 0
  bool between_two;         // a send and a receive
  friend bool operator==(const Asked&, const Asked&) = default;
};

std::string to_text(const Asked& asked) {
  const std::string of = asked.microbatch < 0 ? "" : detail::concat(" for microbatch ", asked.microbatch),
                    in = asked.step == 0 ? "" : detail::concat(" in step ", asked.step, " behind it");
  return detail::concat(name_of(asked.kind), " of ", asked.count, " ", name_of(asked.dtype), of, in);
}

// A send matches a receive, everything else its equal.
bool meet(const Asked& mine, const Asked& theirs) {
  if (!mine.between_two) return mine == theirs;
  Asked mirror = theirs;
  mirror.kind = theirs.kind == CommKind::send ? CommKind::recv : CommKind::send;
  return mine == mirror;
}

// The collectives of each communicator, in order.
struct Demands {
  std::map<std::string, std::vector<Asked>> of;  // by queue
  std::map<std::string, QueueInfo> queues;       // by name
};

void add_demands(const Plan& plan, const Call& call, std::int32_t of, Demands& demands) {
  for (const PlannedStep& step : plan.steps(call)) {
    if (!step.exchange) continue;
    const PlannedExchange& e = *step.exchange;
    demands.of[plan.queues[call.queue].name].push_back({e.kind, e.reduction, e.dtype, e.count,
                                                        e.is_between_two() ? call.microbatch : -1, of,
                                                        e.distance, e.is_between_two()});
  }
}

// Returns the collectives of a step or, if steps overlap, of `steps` in a row until the last has ended.
Demands demands_of(const Plan& plan, std::int32_t steps) {
  Demands demands;
  for (const QueueInfo& queue : plan.queues)
    if (queue.communicates()) demands.queues[queue.name] = queue;
  for (std::int32_t iteration = 0; iteration < steps + plan.depth(); ++iteration) {
    const Iteration where{iteration, std::max(0, iteration + 1 - steps)};
    for (const Call& call : plan.calls)
      if (call.runs_in(where)) add_demands(plan, call, iteration - call.behind, demands);
  }
  return demands;
}

// Returns enough steps that those in the middle are unaffected by the ends.
std::int32_t steps_looked_at(std::span<const RankPlan> ranks) {
  std::int32_t depth = 0;
  for (const RankPlan& rank : ranks) depth = std::max(depth, rank.plan->depth());
  return depth == 0 ? 1 : depth + 2;
}

class RankCheck {
 public:
  RankCheck(const Program& program, std::span<const RankPlan> ranks) : mesh_(program.mesh()), ranks_(ranks) {
    for (const RankPlan& rank : ranks) demands_.try_emplace(rank.plan, Demands{});
    const std::int32_t steps = steps_looked_at(ranks);
    for (auto& [plan, demands] : demands_) demands = demands_of(*plan, steps);
  }

  void run() const {
    for (std::size_t a = 0; a < ranks_.size(); ++a)
      for (std::size_t b = a + 1; b < ranks_.size(); ++b)
        if (ranks_[a].plan != ranks_[b].plan) compare(ranks_[a], ranks_[b]);
  }

 private:
  template <class... Parts>
  [[noreturn]] static void fail(const RankPlan& a, const RankPlan& b, const Parts&... parts) {
    throw_error(ErrorCode::internal, "plan check: ranks ", a.rank, " and ", b.rank, ": ",
                detail::concat(parts...));
  }

  bool connects(const QueueInfo& queue, const RankPlan& a, const RankPlan& b) const {
    const std::vector<int> members = queue.members(mesh_, a.rank);
    return std::find(members.begin(), members.end(), static_cast<int>(b.rank)) != members.end();
  }

  void compare(const RankPlan& a, const RankPlan& b) const {
    const Demands &mine = demands_.at(a.plan), &theirs = demands_.at(b.plan);
    for (const auto& [name, queue] : mine.queues)
      if (connects(queue, a, b)) {
        if (const auto other = theirs.queues.find(name);
            other == theirs.queues.end() || !connects(other->second, b, a))
          fail(a, b, "rank ", b.rank, " has no communicator '", name, "'");
        compare_queue(a, b, name);
      }
    for (const auto& [name, queue] : theirs.queues)
      if (connects(queue, b, a) && !mine.queues.count(name))
        fail(a, b, "rank ", a.rank, " has no communicator '", name, "'");
  }

  void compare_queue(const RankPlan& a, const RankPlan& b, const std::string& queue) const {
    const auto &mine = demands_.at(a.plan).of, &theirs = demands_.at(b.plan).of;
    static const std::vector<Asked> nothing;
    const auto of = [&](const auto& map) -> const std::vector<Asked>& {
      const auto found = map.find(queue);
      return found == map.end() ? nothing : found->second;
    };
    const std::vector<Asked>&x = of(mine), &y = of(theirs);
    for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i)
      if (i >= x.size() || i >= y.size() || !meet(x[i], y[i]))
        fail(a, b, "exchange ", i, " on '", queue, "' is ", i < x.size() ? to_text(x[i]) : "missing",
             " for one and ", i < y.size() ? to_text(y[i]) : "missing", " for the other");
  }

  const Mesh& mesh_;
  std::span<const RankPlan> ranks_;
  std::map<const Plan*, Demands> demands_;
};

class Fingerprint {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    hash_.update(detail::concat(parts...));
    hash_.update("\n");
  }
  void add_address(const Address& a) {
    add(static_cast<int>(a.region), ' ', static_cast<int>(a.whose), ' ', a.instance, ' ',
        is_scratch(a.region) ? 0 : a.offset, ' ', a.bytes, ' ', a.range);
  }
  std::string hex() { return hash_.hex(); }

 private:
  Sha256 hash_;
};

void add_op(Fingerprint& print, const Op& op) {
  print.add(op.kind());
  for (std::uint64_t i = 0; i < op.def->attr_count; ++i)
    if (!op.def->attrs[i].says_nothing(op.attrs[i])) print.add(op.attrs[i].i);
}

void add_function(Fingerprint& print, const Program& program, const PlannedFunction& function) {
  print.add("function ", function.segment, ' ', name_of(function.kind));
  for (const PlannedStep& step : function.steps) {
    if (step.op != none) add_op(print, program.op(step.op));
    for (const PlannedOperand& operand : step.operands) {
      if (operand.value == none) continue;
      for (const Dim& dim : program.local_dims(operand.value)) print.add(dim.name.view(), '=', dim.extent);
      print.add_address(operand.address);
    }
    if (step.exchange)
      print.add(name_of(step.exchange->kind), ' ', step.exchange->count, ' ', step.exchange->pieces);
  }
  for (const Piece& piece : function.pieces) print.add(piece.first, ' ', piece.last, ' ', piece.queue);
}

}  // namespace

namespace {

// Encodes in which iterations of a row the call runs.
std::string iterations_of(const Call& call) {
  int iterations = 0, bit = 1;
  for (const Iteration& iteration : {Iteration::beginning, Iteration::going_on, Iteration::ending}) {
    if (call.runs_in(iteration)) iterations += bit;
    bit *= 2;
  }
  if (call.from < 2 && (call.to < 2 || call.to == Iteration::many)) return detail::concat(iterations);
  return detail::concat(iterations, ' ', int{call.from}, ' ', int{call.to});
}

}  // namespace

void check_ranks(const Program& program, std::span<const RankPlan> ranks) { RankCheck(program, ranks).run(); }

std::string fingerprint(const Program& program, const Plan& plan) {
  Fingerprint print;
  for (const PlannedFunction& function : plan.functions) add_function(print, program, function);
  for (const QueueInfo& queue : plan.queues)
    print.add(queue.name, ' ', static_cast<std::int64_t>(queue.axis), ' ', queue.peer, ' ', queue.calls);
  for (const Call& call : plan.calls)
    print.add(call.function, ' ', call.piece, ' ', call.instance, ' ', call.microbatch, ' ', call.slot, ' ',
              call.stub_slot, plan.carried_slots > 0 ? detail::concat(' ', call.carried_slot) : std::string(),
              plan.overlaps || call.to != Iteration::many
                  ? detail::concat(' ', call.behind, ' ', iterations_of(call))
                  : std::string());
  for (int region = 0; region < regions; ++region)
    if (!is_scratch(static_cast<Region>(region)) && region != static_cast<int>(Region::unreduced) &&
        (region != static_cast<int>(Region::carried) || plan.carried_slots > 0))
      print.add(plan.layout.memory.bytes[static_cast<std::size_t>(region)]);
  return print.hex();
}

}  // namespace prun
