// ZB-H1, the memory-saving zero-bubble schedule (Qi et al., 2023), is 1F1B with each backward cut in two.
//
// Another rank waits for the input gradient (B here) alone. The weight gradient (W) can run at any later
// time, so it goes where 1F1B is idle: while the last input gradients are on their way from the ranks after
// this one. Rank r is r weight gradients late. That sends input gradients out early and makes every rank hold
// the activations of `ranks` microbatches, as rank 0 does in 1F1B. Idle: (ranks - 1) * (F + B - W) a step, a
// third of 1F1B's where the three take equally long.
//
//   rank 0  F0-F1-F2-......B0-W0-F3-B1-W1-B2-W2-B3-W3-
//   rank 1  ...F0-F1-...B0-F2-B1-W0-F3-B2-W1-B3-W2-W3-
//   rank 2  ......F0-B0-F1-B1-F2-B2-W0-F3-B3-W1-W2-W3-
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class ZeroBubbleH1 final : public Schedule {
 public:
  explicit ZeroBubbleH1(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks == 1) return "";
    return detail::concat("zb-h1 gives each rank one chunk, not ", shape.chunks,
                          "; set chunks to 1, or to 2 with the schedule zb-v");
  }

  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t rank) override {
    const std::int32_t warm_up = std::min(shape.ranks - 1 - rank, shape.microbatches);
    const std::int32_t late = rank;
    std::vector<ScheduleCall> calls;
    std::int32_t forwards = 0, inputs = 0, weights = 0;
    const auto forward = [&] { calls.push_back({Pass::forward, 0, forwards++}); };
    const auto weight = [&] { calls.push_back({Pass::backward_weight, 0, weights++}); };
    const auto input = [&] {
      calls.push_back({Pass::backward_input, 0, inputs++});
      if (inputs > late) weight();
    };

    while (forwards < warm_up) forward();
    while (forwards < shape.microbatches) {
      forward();
      input();
    }
    while (inputs < shape.microbatches) input();
    while (weights < shape.microbatches) weight();
    return calls;
  }

  std::optional<Bubble> bubble(const ScheduleShape& shape) override {
    if (shape.microbatches < shape.ranks) return std::nullopt;
    return bubble_of_idle(shape.ranks - 1, shape, "(p-1)/(3 m+p-1)");
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(schedule, prun::ZeroBubbleH1, "zb-h1", "0.1.0",
            "1F1B with weight gradients in its bubbles (ZB-H1): a third of the idle time", "backward=split",
            "");
