// Computes how much of a plan's arena is in use when, over the calls of a step, and what most of it consists
// of.
#pragma once

#include <string>
#include <vector>

#include "train/assemble/assembly.hpp"

namespace prun {

// Holds what is in use while one call runs that computes.
struct MemoryMoment {
  std::string call;          // such as "backward block.3 mb 1"
  std::int64_t saved = 0;    // is what forward keeps for backward and hands on, of microbatches alive
  std::int64_t scratch = 0;  // that of this call
};

struct PeakTensor {
  std::string name, region;
  std::int64_t bytes = 0;
};

struct MemoryUse {
  std::int64_t always = 0;  // is there in every moment: parameters, gradients, state, buffers used in turn
  std::vector<MemoryMoment> moments;
  std::size_t peak = 0;             // the moment with most in use
  std::vector<PeakTensor> tensors;  // those that the call at the peak works with, the largest first

  std::int64_t at(std::size_t moment) const {
    return always + moments[moment].saved + moments[moment].scratch;
  }
};

MemoryUse memory_use(const Assembly& assembly, std::int64_t rank);

}  // namespace prun
