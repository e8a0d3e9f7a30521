// In interleaved 1F1B each rank holds several short stages that are `ranks` apart in the chain, so a
// microbatch passes every rank `chunks` times. A stage takes 1/chunks of the time, and so does the wait for
// the first one to come by: the idle time falls to (ranks - 1) * (forward + backward of a chunk) a step. Its
// price is chunks times the traffic, and somewhat more activations than 1f1b.
//
// Forwards go in rounds of `ranks` microbatches: chunk 0 of each, then chunk 1 of each, and so on, then the
// next round. With 2 ranks, 4 microbatches and 2 chunks (chunk.microbatch), on every rank:
//
//   forwards    0.0 0.1  1.0 1.1  0.2 0.3  1.2 1.3
//   backwards   1.0 1.1  0.0 0.1  1.2 1.3  0.2 0.3    the same, from the last chunk to the first
//
// The two lists are merged as in 1F1B: a warm-up of forwards, one forward and one backward alternately, the
// backwards that are left.
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

// Returns the k-th forward of a rank. Rounds are full: microbatches are a multiple of ranks.
ScheduleCall kth_forward(const ScheduleShape& shape, std::int32_t k) {
  const std::int32_t round = shape.ranks * shape.chunks;
  return {Pass::forward, k % round / shape.ranks, k / round * shape.ranks + k % shape.ranks};
}

ScheduleCall kth_backward(const ScheduleShape& shape, std::int32_t k) {
  const ScheduleCall mirror = kth_forward(shape, k);
  return {Pass::backward, shape.chunks - 1 - mirror.chunk, mirror.microbatch};
}

class Interleaved final : public Schedule {
 public:
  explicit Interleaved(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks < 2) return "interleaved needs at least 2 chunks a rank; set chunks or take 1f1b";
    if (shape.microbatches % shape.ranks == 0) return "";
    return detail::concat("interleaved takes microbatches in rounds of ", shape.ranks, ", one a rank, and ",
                          shape.microbatches, " is no multiple of that; change the batch or take 1f1b");
  }

  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t rank) override {
    const std::int32_t total = shape.microbatches * shape.chunks;
    // The warm-up has all but the last chunk of the first round, and two more for each rank that comes after
    // this one: the way there and back.
    const std::int32_t warm_up =
        std::min((shape.chunks - 1) * shape.ranks + 2 * (shape.ranks - 1 - rank), total);
    std::vector<ScheduleCall> calls;
    std::int32_t forwards = 0, backwards = 0;
    const auto forward = [&] { calls.push_back(kth_forward(shape, forwards++)); };
    const auto backward = [&] { calls.push_back(kth_backward(shape, backwards++)); };

    while (forwards < warm_up) forward();
    while (forwards < total) {
      forward();
      backward();
    }
    while (backwards < total) backward();
    return calls;
  }

  std::optional<Bubble> bubble(const ScheduleShape& shape) override {
    return bubble_of_idle(3 * (shape.ranks - 1), shape, "(p-1)/(v m+p-1)");
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(schedule, prun::Interleaved, "interleaved", "0.1.0",
            "1F1B over several short stages per rank: less idle time, more communication", "backward=whole",
            "");
