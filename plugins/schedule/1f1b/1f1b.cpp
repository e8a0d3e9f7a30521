// 1F1B, one forward one backward, is like gpipe, but a rank runs a backward as soon as one can be there. The
// idle time is the same, (ranks - 1) * (forward + backward) a step; what it saves is memory.
//
//   warm-up    rank r runs ranks - 1 - r forwards: just enough that the microbatch it sent first has come
//              back by the time it needs a backward
//   steady     one forward, one backward, so that no more than ranks - r microbatches are ever alive
//   cool-down  the backwards that are left, as many as there were warm-up forwards
//
//   rank 0  F0-F1-F2-............B0----F3-B1----...B2----...B3----
//   rank 1  ...F0-F1-......B0----F2-B1----F3-B2----...B3----......
//   rank 2  ......F0-B0----F1-B1----F2-B2----F3-B3----............
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class OneForwardOneBackward final : public Schedule {
 public:
  explicit OneForwardOneBackward(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks == 1) return "";
    return detail::concat("1f1b gives each rank one chunk, not ", shape.chunks,
                          "; set chunks to 1 or take the schedule interleaved");
  }

  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t rank) override {
    const std::int32_t warm_up = std::min(shape.ranks - 1 - rank, shape.microbatches);
    std::vector<ScheduleCall> calls;
    std::int32_t forwards = 0, backwards = 0;
    const auto forward = [&] { calls.push_back({Pass::forward, 0, forwards++}); };
    const auto backward = [&] { calls.push_back({Pass::backward, 0, backwards++}); };

    while (forwards < warm_up) forward();
    while (forwards < shape.microbatches) {
      forward();
      backward();
    }
    while (backwards < shape.microbatches) backward();
    return calls;
  }

  std::optional<Bubble> bubble(const ScheduleShape& shape) override {
    return bubble_of_idle(3 * (shape.ranks - 1), shape, "(p-1)/(m+p-1)");
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(schedule, prun::OneForwardOneBackward, "1f1b", "0.1.0",
            "One forward, one backward: idle time as with gpipe, fewer saved activations", "backward=whole",
            "");
