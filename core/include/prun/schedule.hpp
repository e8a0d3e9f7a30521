// SPDX-License-Identifier: Apache-2.0
// A plugin of kind `schedule` defines the order in which each rank of a pipeline runs the passes of a step.
// It is a pure function of (ranks, microbatches, chunks): it sees neither the model nor the mesh, and returns
// the same for the same arguments on every rank.
//
// The layer sequence is split into ranks * chunks stages. stage() says which of them is chunk c of a rank;
// order() lists a rank's calls. Sends, receives and their overlap follow from it, and so does the proof that
// it cannot deadlock: a forward needs the forward of the stage before, a backward that of the stage after.
//
// Traits of its PRUN_PLUGIN line: "backward=whole" (Pass::backward only) or "backward=split"
// (backward_input and backward_weight only, so that the latter may run later).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prun/options.hpp"

namespace prun {

enum class Pass : std::uint8_t { forward, backward, backward_input, backward_weight };
inline constexpr int pass_count = 4;

constexpr const char* name_of(Pass pass) {
  constexpr const char* names[] = {"forward", "backward", "backward_input", "backward_weight"};
  return names[static_cast<int>(pass)];
}

struct ScheduleCall {
  Pass pass = Pass::forward;
  std::int32_t chunk = 0;  // chunk of the rank
  std::int32_t microbatch = 0;
  friend bool operator==(const ScheduleCall&, const ScheduleCall&) = default;
};

struct ScheduleShape {
  std::int32_t ranks = 1;
  std::int32_t microbatches = 1;
  std::int32_t chunks = 1;  // stages that a rank holds
};

// States the bubble: the idle fraction of a step, over all ranks together, if forward, input gradients and
// weight gradients take one unit each and transfers none.
struct Bubble {
  std::string formula;  // formula in p ranks, m microbatches, v chunks: "(p-1)/(m+p-1)"
  double share = 0;
};
// Returns the bubble of a schedule that leaves each rank idle for that many units.
inline Bubble bubble_of_idle(double units, const ScheduleShape& shape, std::string formula) {
  const double busy = 3.0 * shape.microbatches * shape.chunks;
  return {std::move(formula), units / (busy + units)};
}

class Schedule {
 public:
  virtual ~Schedule() = default;
  // Says why this shape cannot be scheduled, in a sentence that says what to change; the text is empty if it
  // can.
  virtual std::string problem(const ScheduleShape&) { return {}; }
  // Returns which of the ranks * chunks stages is `chunk` of `rank`. Every stage has one place.
  virtual std::int32_t stage(const ScheduleShape& shape, std::int32_t rank, std::int32_t chunk) {
    return chunk * shape.ranks + rank;
  }
  virtual std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t rank) = 0;
  // Returns the bubble that theory gives for this order, or nothing if there is no closed form. It is shown
  // beside the order's own bubble.
  virtual std::optional<Bubble> bubble(const ScheduleShape&) { return std::nullopt; }
};

class ScheduleInterface {
 public:
  // Empty text means no problem. It is valid until the next call, like the array of order().
  virtual Status problem(const ScheduleShape& shape, Text* text) noexcept = 0;
  virtual Status stage(const ScheduleShape& shape, std::int32_t rank, std::int32_t chunk,
                       std::int32_t* stage) noexcept = 0;
  virtual Status order(const ScheduleShape& shape, std::int32_t rank,
                       Array<ScheduleCall>* calls) noexcept = 0;
  // An empty formula means that nothing is known.
  virtual Status bubble(const ScheduleShape& shape, Text* formula, double* share) noexcept = 0;

 protected:
  ~ScheduleInterface() = default;
};

template <class Author>
class ScheduleAdapter final : public ScheduleInterface {
 public:
  explicit ScheduleAdapter(const Options& options) : author_(options) {}
  Status problem(const ScheduleShape& shape, Text* text) noexcept override {
    return guard([&] {
      problem_ = schedule().problem(shape);
      *text = problem_;
    });
  }
  Status stage(const ScheduleShape& shape, std::int32_t rank, std::int32_t chunk,
               std::int32_t* stage) noexcept override {
    return guard([&] { *stage = schedule().stage(shape, rank, chunk); });
  }
  Status order(const ScheduleShape& shape, std::int32_t rank, Array<ScheduleCall>* calls) noexcept override {
    return guard([&] {
      calls_ = schedule().order(shape, rank);
      *calls = {calls_.data(), calls_.size()};
    });
  }
  Status bubble(const ScheduleShape& shape, Text* formula, double* share) noexcept override {
    return guard([&] {
      bubble_ = schedule().bubble(shape).value_or(Bubble{});
      *formula = bubble_.formula;
      *share = bubble_.share;
    });
  }

 private:
  Schedule& schedule() { return author_; }
  Author author_;
  std::string problem_;
  Bubble bubble_;
  std::vector<ScheduleCall> calls_;
};

}  // namespace prun
