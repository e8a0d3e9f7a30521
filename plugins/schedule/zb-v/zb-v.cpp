// In ZB-V, the zero-bubble schedule on a V (Qi et al., 2024), each rank holds two half-length stages, and the
// chain runs down the ranks and back up again. With 4 ranks:
//
//   rank 0   stage 0 . . . . . . 7      chunk 0 is the way down, chunk 1 the way up. The rank with the first
//   rank 1     stage 1 . . . . 6        stage has the last one too, so input gradients set out early, and
//   rank 2       stage 2 . . 5          a rank that holds chunk 0 for long holds chunk 1 briefly: every
//   rank 3         stage 3 4            rank keeps 2 * ranks chunks alive, as much as rank 0 of 1F1B.
//
// Backward is cut in two as in zb-h1: input gradients, and weight gradients that may wait. Where the three
// passes take equally long, no rank is idle between its first and its last call; that needs 2 * ranks - 1
// microbatches or more. The order is written out below, phase by phase.
#include <algorithm>
#include <array>

#include "prun/plugin.hpp"

namespace prun {
namespace {

enum : std::int32_t { down = 0, up = 1 };  // the chunks

// Collects a rank's calls in their order; every pass takes its microbatches in order.
class CallList {
 public:
  void forward(std::int32_t chunk) { add(Pass::forward, chunk); }
  void input(std::int32_t chunk) { add(Pass::backward_input, chunk); }
  void weight(std::int32_t chunk) { add(Pass::backward_weight, chunk); }
  std::int32_t count(Pass pass, std::int32_t chunk) const { return next_[index(pass, chunk)]; }
  std::vector<ScheduleCall> take() { return std::move(calls_); }

 private:
  static std::size_t index(Pass pass, std::int32_t chunk) {
    return static_cast<std::size_t>(2 * static_cast<std::int32_t>(pass) + chunk);
  }
  void add(Pass pass, std::int32_t chunk) { calls_.push_back({pass, chunk, next_[index(pass, chunk)]++}); }

  std::vector<ScheduleCall> calls_;
  std::array<std::int32_t, 2 * pass_count> next_{};
};

// Must be called with microbatches >= 2 * ranks - 1.
std::vector<ScheduleCall> full_order(std::int32_t ranks, std::int32_t microbatches, std::int32_t rank) {
  const std::int32_t below = ranks - rank;  // counts ranks on the way down from here, this one included
  CallList list;
  const auto turn = [&](std::int32_t chunk) {
    list.forward(chunk);
    list.input(chunk);
    list.weight(chunk);
  };
  // The pipeline fills: as many go down as set out before the first microbatch is back up here, then one down
  // for each one up until that microbatch has reached the last stage.
  for (std::int32_t i = 0; i < 2 * below - 1; ++i) list.forward(down);
  for (std::int32_t i = 0; i < rank; ++i) {
    list.forward(up);
    list.forward(down);
  }
  // Input gradients come back through the upward arm, not yet through the downward one.
  for (std::int32_t i = 0; i < below; ++i) turn(up);
  // The pipeline is steady: both chunks alternate, with a forward as long as there is one.
  while (list.count(Pass::forward, up) < microbatches) {
    if (list.count(Pass::forward, down) < microbatches) list.forward(down);
    list.input(down);
    list.weight(down);
    turn(up);
  }
  // The pipeline drains: weight gradients wait, so that the ranks before get their input gradients at once.
  for (std::int32_t i = 0; i < rank; ++i) {
    list.input(down);
    list.input(up);
  }
  for (std::int32_t i = 0; i < below; ++i) {
    list.input(down);
    list.weight(down);
  }
  for (const std::int32_t chunk : {up, down})
    while (list.count(Pass::backward_weight, chunk) < microbatches) list.weight(chunk);
  return list.take();
}

class ZeroBubbleV final : public Schedule {
 public:
  explicit ZeroBubbleV(const Options&) {}

  std::string problem(const ScheduleShape& shape) override {
    if (shape.chunks == 2) return "";
    return detail::concat("zb-v gives each rank two chunks, one on each arm of the V, not ", shape.chunks,
                          "; set chunks to 2");
  }

  std::int32_t stage(const ScheduleShape& shape, std::int32_t rank, std::int32_t chunk) override {
    return chunk == down ? rank : 2 * shape.ranks - 1 - rank;
  }

  // With fewer microbatches than the phases need, the order is that of as many as they need, without those
  // that are not there. It has gaps, but it ends.
  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t rank) override {
    const std::int32_t microbatches = std::max(shape.microbatches, 2 * shape.ranks - 1);
    std::vector<ScheduleCall> calls = full_order(shape.ranks, microbatches, rank);
    std::erase_if(calls, [&](const ScheduleCall& call) { return call.microbatch >= shape.microbatches; });
    return calls;
  }

  std::optional<Bubble> bubble(const ScheduleShape& shape) override {
    if (shape.microbatches < 2 * shape.ranks - 1) return std::nullopt;
    return bubble_of_idle(shape.ranks - 1, shape, "(p-1)/(6 m+p-1)");
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(schedule, prun::ZeroBubbleV, "zb-v", "0.1.0",
            "Two chunks per rank in a V, weight gradients in the bubbles (ZB-V): almost no idle time",
            "backward=split", "");
