// Makes streams, whose priorities say which work goes first.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Holds the priorities that the current device has; the greatest is the smallest number.
struct Priorities {
  int least, greatest;
};
Priorities priorities();
Stream make_stream(int priority);

}  // namespace prun::cuda
