#include "train/tune/outline_costs.hpp"

#include <algorithm>
#include <map>

namespace prun {
namespace {

bool is_pass(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight;
}

class OutlineReader {
 public:
  OutlineReader(const Assembly& written, const PlanOutline& outline, Prices& prices,
                std::int64_t ranks_of_host)
      : written_(written),
        program_(written.program()),
        plan_(outline.plan),
        prices_(prices),
        ranks_of_host_(ranks_of_host),
        microbatches_(static_cast<double>(written.batch().accumulate)) {
    for (const Bucket& bucket : program_.buckets()) {
      gathers_ |= gathers_parameters(program_, bucket);
      reduces_ |= keeps_summed_parts(program_, bucket);
    }
    for (const Instance& instance : plan_.instances)
      if (!instance.receive_stub) ++instances_[instance.segment];
    instances_[program_.step_segment()] = 1;
  }

  OutlineCosts read() {
    OutlineCosts costs;
    std::map<std::int32_t, double> others;
    for (const PlannedFunction& function : plan_.functions) {
      const auto found = instances_.find(function.segment);
      if (found == instances_.end() || calls_of(function.kind) == 0) continue;
      const double times = static_cast<double>(found->second) * calls_of(function.kind);
      for (const Piece& piece : function.pieces) {
        const double seconds = times * seconds_of(function, piece);
        const QueueInfo& queue = plan_.queues[piece.queue];
        const bool computes = queue.workers && queue.device == 0;
        if (computes) costs.computed += seconds;
        if (is_pass(function.kind))
          costs.passes += seconds;
        else if (computes)
          costs.rest += seconds;
        if (!computes) others[piece.queue] += seconds;
      }
    }
    for (const auto& [queue, seconds] : others) costs.beside = std::max(costs.beside, seconds);
    return costs;
  }

 private:
  // Returns how often a step calls a function of an instance.
  double calls_of(FunctionKind kind) const {
    switch (kind) {
      case FunctionKind::load:
      case FunctionKind::forward:
      case FunctionKind::backward:
      case FunctionKind::backward_weight:
      case FunctionKind::clear:
      case FunctionKind::put_away:
      case FunctionKind::bring_back: return microbatches_;
      case FunctionKind::gather: return gathers_ ? 2 * microbatches_ : 1;
      case FunctionKind::reduce: return reduces_ ? microbatches_ : 1;
      case FunctionKind::zero:  // since most sums begin by a write
      case FunctionKind::diagnose: return 0;
      default: return 1;
    }
  }

  double seconds_of(const PlannedFunction& function, const Piece& piece) {
    double seconds = 0;
    const QueueInfo& queue = plan_.queues[piece.queue];
    for (std::int32_t i = piece.first; i < piece.last; ++i) {
      const PlannedStep& step = function.steps[i];
      if (step.exchange)
        seconds += exchange(*step.exchange, queue);
      else if (step.kernel)
        seconds += prices_.kernel(program_, step);
    }
    return seconds + prices_.overheads().call;
  }

  double exchange(const PlannedExchange& exchange, const QueueInfo& queue) {
    const std::vector<int> members = queue.members(program_.mesh(), written_.rank());
    const auto count = static_cast<std::int64_t>(members.size());
    const bool far =
        ranks_of_host_ > 0 && members.front() / ranks_of_host_ != members.back() / ranks_of_host_;
    return far ? prices_.far_exchange(exchange, count, queue.name)
               : prices_.exchange(exchange, count, queue.name);
  }

  const Assembly& written_;
  const Program& program_;
  const Plan& plan_;
  Prices& prices_;
  const std::int64_t ranks_of_host_;
  const double microbatches_;
  bool gathers_ = false, reduces_ = false;
  std::map<Id, std::int64_t> instances_;  // number of instances by segment
};

// Counts the bytes in the first range, of the regions whose size does not depend on the order of calls.
std::int64_t bytes_of(const PlanOutline& outline, std::int64_t alive) {
  const Plan& plan = outline.plan;
  const auto in_region = [&](Region region, std::int64_t& most) {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : bytes_by_instance(plan, outline.sizes, region, 0)) {
      sum += bytes;
      most = std::max(most, bytes);
    }
    return sum;
  };
  std::int64_t bytes = 0, ignored = 0;
  for (const Region region : {Region::parameter, Region::gradient, Region::state})
    bytes += in_region(region, ignored);
  bytes += alive * (in_region(Region::slot, ignored) + in_region(Region::boundary, ignored));
  std::int64_t gathered = 0, scratch = 0;
  in_region(Region::gathered, gathered);
  for (const PlannedFunction& function : plan.functions)
    if (!function.scratch_bytes.empty()) scratch = std::max(scratch, function.scratch_bytes.front());
  return bytes + gathered + scratch;
}

}  // namespace

OutlineCosts costs_of(const Assembly& written, const PlanOutline& outline, Prices& prices,
                      std::int64_t ranks_of_host, std::int64_t alive) {
  OutlineCosts costs = OutlineReader(written, outline, prices, ranks_of_host).read();
  costs.bytes = bytes_of(outline, alive);
  return costs;
}

}  // namespace prun
