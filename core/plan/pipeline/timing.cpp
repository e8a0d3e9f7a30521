#include "plan/pipeline/timing.hpp"

#include <algorithm>
#include <cmath>

namespace prun {
namespace {

bool is_backward(Pass pass) { return pass == Pass::backward || pass == Pass::backward_input; }

double duration(Pass pass, const PassCosts& costs) {
  switch (pass) {
    case Pass::forward: return costs.forward;
    case Pass::backward: return costs.backward_input + costs.backward_weight;
    case Pass::backward_input: return costs.backward_input;
    case Pass::backward_weight: break;
  }
  return costs.backward_weight;
}

// Each rank runs its calls in order. When a call begins depends only on earlier calls, so ranks may be
// visited in any order.
class VirtualRun {
 public:
  VirtualRun(const PipelineOrder& order, const PassCosts& costs)
      : order_(order), costs_(costs), stages_(order.shape.ranks * order.shape.chunks), rank_of_(stages_) {
    const auto passes_of_stages =
        static_cast<std::size_t>(stages_) * static_cast<std::size_t>(order.shape.microbatches);
    forward_end_.assign(passes_of_stages, not_yet);
    backward_end_.assign(passes_of_stages, not_yet);
    for (std::int32_t rank = 0; rank < order.shape.ranks; ++rank)
      for (const std::int32_t stage : order.stages[rank]) rank_of_[stage] = rank;
    times_.resize(order.calls.size());
  }

  Numbered<std::vector<CallTime>> run() {
    for (std::int32_t rank = order_.shape.ranks; rank-- > 0;) may_go_on_.push_back(rank);
    while (!may_go_on_.empty()) {
      const std::int32_t rank = may_go_on_.back();
      may_go_on_.pop_back();
      advance(rank);
    }
    return std::move(times_);
  }

 private:
  static constexpr double not_yet = -1;

  double& end_of(bool backward, std::int32_t stage, std::int32_t microbatch) {
    const std::int64_t index = std::int64_t{stage} * order_.shape.microbatches + microbatch;
    return (backward ? backward_end_ : forward_end_)[index];
  }

  // Returns when what the call waits for is done; not_yet if that is unknown.
  double ready(std::int32_t rank, const ScheduleCall& call) {
    const std::optional<Awaited> awaited = awaited_by(order_, rank, call);
    if (!awaited) return 0;
    const double end = end_of(awaited->backward, awaited->stage, awaited->microbatch);
    if (end == not_yet || rank_of_[awaited->stage] == rank) return end;
    return end + costs_.transfer;
  }

  void advance(std::int32_t rank) {
    const std::vector<ScheduleCall>& calls = order_.calls[rank];
    std::vector<CallTime>& times = times_[rank];
    while (times.size() < calls.size()) {
      const ScheduleCall& call = calls[times.size()];
      const double there = ready(rank, call);
      if (there == not_yet) return;
      const double begin = std::max(there, times.empty() ? 0 : times.back().end);
      times.push_back({begin, begin + duration(call.pass, costs_)});
      inform_neighbour(rank, call, times.back().end);
    }
  }

  void inform_neighbour(std::int32_t rank, const ScheduleCall& call, double end) {
    if (call.pass == Pass::backward_weight) return;
    const bool backward = is_backward(call.pass);
    const std::int32_t stage = order_.stages[rank][call.chunk];
    end_of(backward, stage, call.microbatch) = end;
    const std::int32_t neighbour = backward ? stage - 1 : stage + 1;
    if (neighbour >= 0 && neighbour < stages_) may_go_on_.push_back(rank_of_[neighbour]);
  }

  const PipelineOrder& order_;
  const PassCosts& costs_;
  std::int32_t stages_;
  Numbered<double> forward_end_, backward_end_;  // by stage and microbatch
  Numbered<std::int32_t> rank_of_;               // by stage
  Numbered<std::vector<CallTime>> times_;
  std::vector<std::int32_t> may_go_on_;  // ranks that may proceed
};

std::int32_t peak_of(const std::vector<ScheduleCall>& calls) {
  std::int32_t alive = 0, peak = 0;
  for (const ScheduleCall& call : calls) {
    if (call.pass == Pass::forward) peak = std::max(peak, ++alive);
    if (call.pass == Pass::backward || call.pass == Pass::backward_weight) --alive;
  }
  return peak;
}

void check_costs(const PassCosts& costs) {
  for (const double cost : {costs.forward, costs.backward_input, costs.backward_weight, costs.transfer})
    PRUN_CHECK(cost >= 0 && std::isfinite(cost), "a pass cannot take ", cost);
}

// ---------------------------------------------------------------- drawing

std::string cell_text(const ScheduleCall& call, bool with_chunk) {
  constexpr const char* letters[] = {"F", "B", "B", "W"};
  return (with_chunk ? std::to_string(call.chunk) : "") + letters[static_cast<int>(call.pass)] +
         std::to_string(call.microbatch);
}

// Returns the columns for a unit of time: a whole number for the shortest call if possible, so that equal
// calls look equal.
double columns_per_unit(const PipelineTiming& timing, int columns) {
  double shortest = timing.makespan;
  for (const std::vector<CallTime>& times : timing.times)
    for (const CallTime& time : times)
      if (time.end > time.begin) shortest = std::min(shortest, time.end - time.begin);
  if (shortest <= 0) return 0;
  const double scale = columns / timing.makespan;
  return scale * shortest < 1 ? scale : std::floor(scale * shortest) / shortest;
}

void draw_call(std::string& row, const CallTime& time, double scale, const std::string& text) {
  const auto begin = static_cast<std::size_t>(std::lround(time.begin * scale));
  const auto end = static_cast<std::size_t>(std::lround(time.end * scale));
  if (begin >= end) return;
  // Omit the number if it does not fit: half of it would be another number.
  const std::size_t letter = text.find_first_of("FBW");
  const std::size_t needed = text.size() + (letter > 0 ? 1 : 0);
  const std::string shown = needed <= end - begin ? text : text.substr(letter, 1);
  row.replace(begin, end - begin, shown + std::string(end - begin - shown.size(), '-'));
}

}  // namespace

std::optional<Awaited> awaited_by(const PipelineOrder& order, std::int32_t rank, const ScheduleCall& call) {
  const std::int32_t stage = order.stages[rank][call.chunk];
  const std::int32_t last = order.shape.ranks * order.shape.chunks - 1;
  if (call.pass == Pass::forward && stage > 0) return Awaited{false, stage - 1, call.microbatch};
  if (is_backward(call.pass) && stage < last) return Awaited{true, stage + 1, call.microbatch};
  return std::nullopt;
}

Numbered<std::vector<CallTime>> run_in_virtual_time(const PipelineOrder& order, const PassCosts& costs) {
  return VirtualRun(order, costs).run();
}

PipelineTiming time_schedule(const PipelineOrder& order, const PassCosts& costs) {
  check_costs(costs);
  PipelineTiming timing;
  timing.times = run_in_virtual_time(order, costs);
  for (std::size_t rank = 0; rank < order.calls.size(); ++rank) {
    PRUN_CHECK(timing.times[rank].size() == order.calls[rank].size(), "rank ", rank, " waits forever");
    if (!timing.times[rank].empty())
      timing.makespan = std::max(timing.makespan, timing.times[rank].back().end);
  }
  for (std::size_t rank = 0; rank < order.calls.size(); ++rank) {
    double busy = 0;
    for (const ScheduleCall& call : order.calls[rank]) busy += duration(call.pass, costs);
    const std::vector<CallTime>& times = timing.times[rank];
    timing.idle.push_back(timing.makespan - busy);
    timing.inner_idle.push_back(times.back().end - times.front().begin - busy);
    timing.peak.push_back(peak_of(order.calls[rank]));
  }
  return timing;
}

double bubble_of(const PipelineOrder& order) {
  if (order.overlap) return order.overlap->bubble;
  const PipelineTiming timing = time_schedule(order, PassCosts{1, 1, 1, 0});
  double idle = 0;
  for (const double of_rank : timing.idle) idle += of_rank;
  return idle / (timing.makespan * static_cast<double>(order.calls.size()));
}

std::string draw(const PipelineOrder& order, const PipelineTiming& timing, int width,
                 std::int32_t first_rank) {
  const std::string label = "rank ";
  const std::size_t digits = std::to_string(order.shape.ranks - 1).size();
  const int columns = std::max(1, width - static_cast<int>(label.size() + digits + 2));
  const double scale = columns_per_unit(timing, columns);
  const auto used = static_cast<std::size_t>(std::lround(timing.makespan * scale));
  std::string text;
  for (std::size_t rank = 0; rank < order.calls.size(); ++rank) {
    const std::string number = std::to_string(static_cast<std::size_t>(first_rank) + rank);
    std::string row(used, '.');
    for (std::size_t i = 0; i < order.calls[rank].size(); ++i)
      draw_call(row, timing.times[rank][i], scale, cell_text(order.calls[rank][i], order.shape.chunks > 1));
    text.append(label)
        .append(digits - number.size(), ' ')
        .append(number)
        .append("  ")
        .append(row)
        .append("\n");
  }
  return text;
}

}  // namespace prun
