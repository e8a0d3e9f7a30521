#include "plan/pipeline/stages.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/narrow.hpp"
#include "plan/instances.hpp"
#include "program/flops.hpp"

namespace prun {

std::vector<double> chain_costs(const Program& program) {
  std::vector<double> costs;
  for (const Instance& instance : chain_of(program))
    costs.push_back(instance.layer > 0 ? costs.back() : segment_flops(program, instance.segment));
  return costs;
}

// ---------------------------------------------------------------- cutting

namespace {

// Best division of the first instances into a number of stages: smaller is better.
struct Cut {
  double largest = 0, squares = 0;
  std::int32_t begin = -1;  // first instance of its last stage

  bool better_than(const Cut& other) const {
    return largest != other.largest ? largest < other.largest : squares < other.squares;
  }
};

}  // namespace

Numbered<Stage> cut_evenly(std::span<const double> costs, std::int64_t stages) {
  const auto count = narrow<std::int32_t>(costs.size());
  if (count < stages)
    throw_error(ErrorCode::bad_input, "cannot split ", count, " layers, embedding and head counted, into ",
                stages, " stages: these need at least one each; take fewer ranks or chunks, or more layers");
  std::vector<double> sums(costs.size() + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  const auto none_yet = Cut{std::numeric_limits<double>::infinity(), 0, -1};
  // best[k][n] divides the first n instances into k stages.
  std::vector<Numbered<Cut>> best(static_cast<std::size_t>(stages) + 1,
                                  std::vector<Cut>(costs.size() + 1, none_yet));
  best[0][0] = {};
  for (std::size_t k = 1; k <= static_cast<std::size_t>(stages); ++k)
    for (std::size_t n = k; n <= costs.size(); ++n)
      // The last stage grows as `begin` falls: once it exceeds the best cost, stop.
      for (std::size_t begin = k == 1 ? 1 : n; begin-- > k - 1;) {
        const Cut& before = best[k - 1][begin];
        const double cost = sums[n] - sums[begin];
        if (best[k][n].begin >= 0 && cost > best[k][n].largest) break;
        const Cut cut{std::max(before.largest, cost), before.squares + cost * cost,
                      static_cast<std::int32_t>(begin)};
        if (best[k][n].begin < 0 || !best[k][n].better_than(cut)) best[k][n] = cut;
      }
  Numbered<Stage> cuts(stages);
  std::int32_t end = count;
  for (std::size_t k = cuts.size(); k > 0; --k) {
    const std::int32_t begin = best[k][end].begin;
    cuts[k - 1] = {begin, end};
    end = begin;
  }
  return cuts;
}

std::vector<Stage> cut_as_requested(std::span<const std::int64_t> counts, std::int64_t instances,
                                    std::int64_t stages) {
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(counts.size()) != stages)
    throw_error(ErrorCode::bad_input, "layers lists ", counts.size(), " stages, there are ", stages,
                " (ranks x chunks); list one number for each");
  if (sum != instances || std::any_of(counts.begin(), counts.end(), [](auto n) { return n < 1; }))
    throw_error(ErrorCode::bad_input, "layers adds up to ", sum, ", the model has ", instances,
                " layers, embedding and head counted; give each stage at least one, and all layers in total");
  std::vector<Stage> cuts;
  std::int32_t at = 0;
  for (const std::int64_t n : counts) {
    cuts.push_back({at, at + static_cast<std::int32_t>(n)});
    at = cuts.back().last;
  }
  return cuts;
}

// ---------------------------------------------------------------- who does what

std::int64_t PipelineLayout::holder(std::int32_t stage) const {
  for (std::size_t rank = 0; rank < order.stages.size(); ++rank)
    for (const std::int32_t held : order.stages[rank])
      if (held == stage) return static_cast<std::int64_t>(rank);
  return -1;
}

std::int32_t PipelineLayout::stage_of(std::int32_t instance) const {
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (stages[s].first <= instance && instance < stages[s].last) return static_cast<std::int32_t>(s);
  throw_error(ErrorCode::internal, "instance ", instance, " is in no stage");
}

namespace {

// Returns the coordinate that holds the other copy of a tied parameter; -1: none.
std::int64_t other_holder(const Program& program, const PipelineLayout& layout, std::int64_t coordinate) {
  const std::vector<Instance> chain = chain_of(program);
  std::set<std::int64_t> holders;
  for (std::size_t i = 0; i < chain.size(); ++i)
    if (!program.segment(chain[i].segment).ops(FunctionKind::tie).empty())
      holders.insert(layout.holder(layout.stage_of(static_cast<std::int32_t>(i))));
  if (holders.erase(coordinate) == 0 || holders.empty()) return -1;
  return *holders.begin();
}

// Returns where the rank's last stage before that stage ends.
std::int32_t held_before(const PipelineLayout& layout, std::int64_t coordinate, std::int32_t stage) {
  std::int32_t end = 0;
  for (const std::int32_t held : layout.order.stages[static_cast<std::size_t>(coordinate)])
    if (held < stage) end = std::max(end, layout.stages[held].last);
  return end;
}

}  // namespace

Work work_of(const Program& program, const PipelineLayout& layout, std::int64_t coordinate) {
  const auto rank = static_cast<std::size_t>(coordinate);
  Work work;
  work.axis = layout.axis;
  work.coordinate = coordinate;
  work.split = layout.split;
  work.calls = layout.order.calls[rank];
  if (layout.order.overlap) work.period = layout.order.overlap->periods[rank];
  work.tied_to = other_holder(program, layout, coordinate);
  const auto stages = narrow<std::int32_t>(layout.stages.size());
  for (const std::int32_t stage : layout.order.stages[rank]) {
    const Stage& held = layout.stages[stage];
    const std::int64_t next = stage + 1 < stages ? layout.holder(stage + 1) : -1;
    work.chunks.push_back({stage, held.first, held.last, stage > 0 ? layout.holder(stage - 1) : -1, next,
                           held_before(layout, coordinate, stage),
                           next < 0 ? 0 : held_before(layout, next, stage + 1)});
  }
  return work;
}

}  // namespace prun
