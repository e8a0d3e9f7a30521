// GPipe runs all forwards, then all backwards. It is the simplest order, and the one that keeps the most
// alive: a rank holds the activations of every microbatch at once.
//
//   rank 0  F0-F1-F2-F3-.........B0----B1----B2----B3----
//   rank 1  ...F0-F1-F2-F3-B0----B1----B2----B3----......
//
// Idle: (ranks - 1) * (forward + backward) a step, whatever the number of microbatches.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class GPipe final : public Schedule {
 public:
  explicit GPipe(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks == 1) return "";
    return detail::concat("gpipe gives each rank one chunk, not ", shape.chunks, "; set chunks to 1");
  }

  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t) override {
    std::vector<ScheduleCall> calls;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (std::int32_t microbatch = 0; microbatch < shape.microbatches; ++microbatch)
        calls.push_back({pass, 0, microbatch});
    return calls;
  }

  std::optional<Bubble> bubble(const ScheduleShape& shape) override {
    return bubble_of_idle(3 * (shape.ranks - 1), shape, "(p-1)/(m+p-1)");
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(schedule, prun::GPipe, "gpipe", "0.1.0", "All forwards, then all backwards", "backward=whole",
            "");
