// Expands a pass of a schedule into calls of functions, and finds whose memory each of them touches. Example:
// the backward pass of a chunk of layers 2 and 3 calls backward of layer 3, then of layer 2; with ZeRO-3 each
// touches the gathered parameters of its layer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "prun/schedule.hpp"

namespace prun {

// Is one call of a pass.
struct PassCall {
  std::int32_t function = -1;
  std::int32_t instance = 0;
};
// Returns the calls of a pass in order. Where backward is split into input and weight gradients, a backward
// pass that does both has two calls for each instance.
std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call);

// Finds, by function, the instances whose memory in some regions a call touches.
class TouchedRegions {
 public:
  TouchedRegions(const Plan& plan, std::initializer_list<Region> wanted);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  using Target = std::pair<Whose, std::int32_t>;
  Numbered<std::vector<Target>> targets_;  // targets by function
};

// Finds the instances whose parameters must be gathered for a call: those that it touches in region
// `gathered` or, if they are gathered in place (ProgramWriter::gather_ahead), in `parameter`.
class TouchedGathered {
 public:
  explicit TouchedGathered(const Plan& plan);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  const Plan& plan_;
  const TouchedRegions touched_;
};

}  // namespace prun
