// Chooses, for segments that leave it to the planner, what to compute again, and says what a program does so.
#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "program/recompute.hpp"

namespace prun {
namespace {

// Sums over all repetitions of the segments that leave the choice to the planner.
struct Total {
  double kept = 0, price = 0;
};

// A byte moved counts as one FLOP, so that ops without FLOPs have a price too.
Total total_of(const Program& program, const RecomputeChoice& choice) {
  Total total;
  for (Id id = 0; id < program.segment_count(); ++id) {
    const SegmentData& segment = program.segment(id);
    if (!segment.recompute_to_fit) continue;
    const RecomputeEstimate estimate = estimate_recompute(program, id, choice);
    total.kept += segment.repeat * estimate.kept_bytes;
    total.price += static_cast<double>(segment.repeat) * (estimate.cost.flops + estimate.cost.bytes);
  }
  return total;
}

std::set<std::string> kinds_that_run_again(const Program& program) {
  std::set<std::string> kinds;
  for (Id id = 0; id < program.segment_count(); ++id)
    if (program.segment(id).recompute_to_fit)
      for (Id op : program.segment(id).ops(FunctionKind::forward))
        if (program.op(op).def->effect != Effect::update) kinds.emplace(program.op(op).kind());
  return kinds;
}

// Returns the kind that frees most for its price on top of `choice`, or empty when none frees anything.
std::string best_next(const Program& program, const std::set<std::string>& kinds, RecomputeChoice choice) {
  const Total now = total_of(program, choice);
  std::string best;
  double best_worth = 0;
  choice.op_kinds.emplace_back();
  for (const std::string& kind : kinds) {
    choice.op_kinds.back() = kind;
    const Total then = total_of(program, choice);
    const double worth = (now.kept - then.kept) / std::max(1.0, then.price - now.price);
    if (worth > best_worth) {
      best = kind;
      best_worth = worth;
    }
  }
  return best;
}

template <class Body>
void each_again(const Program& program, Body&& body) {
  for (Id id = 0; id < program.segment_count(); ++id)
    for (FunctionKind kind : backward_functions)
      for (Id op : program.segment(id).ops(kind))
        if (program.op(op).again) body(program.segment(id), program.op(op));
}

}  // namespace

bool chooses_recompute(const Program& program) {
  for (Id id = 0; id < program.segment_count(); ++id)
    if (program.segment(id).recompute_to_fit) return true;
  return false;
}

std::vector<RecomputeChoice> recompute_choices(const Program& program) {
  using Kind = RecomputeChoice::Kind;
  std::vector<RecomputeChoice> choices{{}};
  std::set<std::string> kinds = kinds_that_run_again(program);
  RecomputeChoice growing{Kind::ops, {}};
  for (std::string kind; !(kind = best_next(program, kinds, growing)).empty(); kinds.erase(kind)) {
    growing.op_kinds.push_back(kind);
    choices.push_back(growing);
  }
  choices.push_back({Kind::full, {}});
  return choices;
}

std::string recomputed_text(const Program& program) {
  std::vector<std::pair<const SegmentData*, std::set<std::string>>> segments;
  for (Id id = 0; id < program.segment_count(); ++id)
    if (const SegmentData& segment = program.segment(id); !segment.left_out.empty())
      segments.push_back({&segment, segment.left_out});
  each_again(program, [&](const SegmentData& segment, const Op& op) {
    auto at = std::find_if(segments.begin(), segments.end(),
                           [&](const auto& known) { return known.first == &segment; });
    if (at == segments.end()) at = segments.insert(at, {&segment, {}});
    at->second.emplace(op.kind());
  });
  std::vector<std::string> parts;
  parts.reserve(segments.size());
  for (const auto& [segment, kinds] : segments)
    parts.push_back(join(std::vector<std::string>(kinds.begin(), kinds.end()), ", ") + " in " +
                    segment->name);
  return parts.empty() ? "nothing" : join(parts, "; ");
}

double recomputed_flops(const Program& program) {
  double flops = 0;
  each_again(program, [&](const SegmentData& segment, const Op& op) {
    flops += op.cost(program.shape(op)).flops * static_cast<double>(segment.repeat);
  });
  return flops;
}

}  // namespace prun
