// PipeDream (Narayanan et al., 2019) is 1F1B that never drains, with an update behind the backward of each
// microbatch. A stage goes on with the weights it has: those that a microbatch trains with on rank r of p are
// p - 1 - r updates old when its own gradients are there (the trait delay=stages), and its backward uses the
// version that its forward used, of which the rank keeps as many as microbatches are at work there.
//
//   rank 0  F0-F1-F2-............B0----F3-B1----F4-B2----     each number is a step; behind each B its update
//   rank 1  ...F0-F1-......B0----F2-B1----F3-B2----F4-B3----
//   rank 2  ......F0-B0----F1-B1----F2-B2----F3-B3----F4-B4----
//
// Asked for the microbatches of several steps in a row, it says the order of 1f1b.
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

// Each rank keeps one more version of the weights.
constexpr std::int32_t most_ranks = 32;

class StashedWeights final : public Schedule {
 public:
  explicit StashedWeights(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks != 1)
      return detail::concat("pipedream gives each rank one chunk, not ", shape.chunks, "; set chunks to 1");
    if (shape.microbatches != 1)
      return detail::concat("pipedream's steps are of one microbatch, which is an update, not of ",
                            shape.microbatches,
                            "; make batch.global one batch.micro of each rank that shares out the batch");
    if (shape.ranks <= most_ranks) return "";
    return detail::concat(
        "pipedream keeps a version of the weights for each rank from a stage's on, and so at "
        "most ",
        most_ranks, " ranks are taken, not ", shape.ranks, "; take fewer, or 2bw");
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

PRUN_PLUGIN(schedule, prun::StashedWeights, "pipedream", "0.1.0",
            "1F1B without drains, one update per microbatch, weights as old as the stage is early "
            "(PipeDream): not exact",
            "backward=whole; delay=stages", "");
