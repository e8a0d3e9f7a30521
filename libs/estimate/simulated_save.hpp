// Simulates how a save advances beside steps, in virtual time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun {

struct SavePace {
  double written_per_second = 0;  // bytes that the disk takes
  std::int64_t buffer = 0;        // bytes that are read ahead of the disk
};

// States what one read of a save costs.
struct SaveLoad {
  double bytes = 0;    // bytes that are written
  double seconds = 0;  // time that it reads for, if nothing delays it
};

// Returns when each read is done, in seconds from when the save was begun: reads follow each other, and none
// goes on while the buffer is full of what the disk has not taken.
std::vector<double> ends_of_reads(std::span<const SaveLoad> reads, const SavePace& pace);

}  // namespace prun
