// Executes a plan once: a run knows which of its steps are done, and where its buffers are.
#pragma once

#include <array>
#include <vector>

#include "plan.hpp"
#include "prun/comm.hpp"
#include "wire.hpp"

namespace prun::ucx {

class Run;

struct RunningStep : Transfer {
  Run* run = nullptr;
  StepId step = no_step;
  std::uint32_t waits_for = 0;
};

class Run {
 public:
  explicit Run(const Plan& plan);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // `number` counts within its kind of traffic, which `tag` states; it is the same on both sides.
  void begin(const CommOp& op, std::uint64_t tag, std::uint32_t number);
  void use_scratch(std::byte* scratch) { buffers_[static_cast<std::size_t>(Buffer::scratch)] = scratch; }

  const Plan& plan() const { return *plan_; }
  const CommOp& op() const { return op_; }
  std::uint64_t tag() const { return tag_; }
  std::uint32_t number() const { return number_; }
  bool done() const { return left_ == 0; }
  std::vector<RunningStep>& steps() { return steps_; }

  std::byte* address(Place place) const {
    return buffers_[static_cast<std::size_t>(place.buffer)] + place.offset;
  }

  // The first adds to `ready` the steps that wait for nothing; the second those that waited for this step
  // alone.
  void add_first(std::vector<RunningStep*>& ready);
  void finish(const RunningStep& step, std::vector<RunningStep*>& ready);

 private:
  const Plan* plan_;
  CommOp op_;
  std::uint64_t tag_ = 0;
  std::uint32_t number_ = 0;
  std::array<std::byte*, 3> buffers_{};
  std::vector<RunningStep> steps_;
  std::size_t left_ = 0;
};

}  // namespace prun::ucx
