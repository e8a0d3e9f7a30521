// PipeDream-2BW (Narayanan et al., 2021) is 1F1B that never drains. The weights that a step trains with are
// one update old (the trait delay=1), so its first forwards need not wait for the last backwards of the step
// before: a rank goes on with one forward and one backward for ever, and no rank is ever idle.
//
//   rank 0  F0-F1-F2-F3-B0----F0'B1----F1'B2----F2'B3----F3'B0'---     ' of the next step
//   rank 1  ...F0-F1-F2-B0----F3-B1----F0'B2----F1'B3----F2'B0'---
//   ...
//
// The order of one step alone is that of 1f1b, and so are the activations that a rank keeps. A step's update
// needs the norm of all its gradients, which is there when the first rank has run its last backward; every
// rank must have updated before the first forward of the step after the next. That takes as many microbatches
// as there are ranks.
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class TwoBufferedWeights final : public Schedule {
 public:
  explicit TwoBufferedWeights(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks != 1)
      return detail::concat("2bw gives each rank one chunk, not ", shape.chunks, "; set chunks to 1");
    if (shape.microbatches >= shape.ranks) return "";
    return detail::concat("2bw needs a microbatch for each of the ", shape.ranks, " ranks, not ",
                          shape.microbatches, "; make batch.global larger or batch.micro smaller");
  }

  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t rank) override {
    const std::int32_t ahead = std::min(shape.ranks - 1 - rank, shape.microbatches);
    std::vector<ScheduleCall> calls;
    for (std::int32_t i = 0; i < shape.microbatches + ahead; ++i) {
      if (i < shape.microbatches) calls.push_back({Pass::forward, 0, i});
      if (i >= ahead) calls.push_back({Pass::backward, 0, i - ahead});
    }
    return calls;
  }

  std::optional<Bubble> bubble(const ScheduleShape&) override { return Bubble{"0 between drains", 0}; }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(schedule, prun::TwoBufferedWeights, "2bw", "0.1.0",
            "1F1B without drains, with weights one update old (PipeDream-2BW): no idle time, not exact",
            "backward=whole; delay=1", "");
