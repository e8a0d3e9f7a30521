// Determines which functions a pass calls, and whose memory each of them uses. Example: backward of layer 3
// with ZeRO-3: gather of layer 3, fetch of its saved activations, backward, reduce.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "prun/schedule.hpp"

namespace prun {

// Describes a function as a pass calls it.
struct PassCall {
  std::int32_t function = -1;
  std::int32_t instance = 0;
};
// Returns a pass's functions in order. The backward pass of a program whose backward is split has two
// functions.
std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call);

// Finds which instances' memory in a region the calls of each function touch.
class TouchedRegions {
 public:
  TouchedRegions(const Plan& plan, std::initializer_list<Region> wanted);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  using Target = std::pair<Whose, std::int32_t>;
  Numbered<std::vector<Target>> targets_;  // targets by function
};

// Finds whose parameters have to be gathered for a call: those that it touches in the region of gathered ones
// or, in a program that has none there and gathers parameters all the same, where they always are
// (ProgramWriter::gather_ahead).
class TouchedGathered {
 public:
  explicit TouchedGathered(const Plan& plan);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  const Plan& plan_;
  const TouchedRegions touched_;
};

}  // namespace prun
