// Keeps stamps of a GPU: numbers in pinned memory, to which it writes the time.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gpu_memory.hpp"

namespace prun::cuda {

class Stamps {
 public:
  // Must be called while the GPU is current.
  std::uint64_t* create();
  void destroy(std::uint64_t* stamp) { free_.push_back(stamp); }

 private:
  std::deque<PinnedRange> pages_;
  std::vector<std::uint64_t*> free_;
};

}  // namespace prun::cuda
