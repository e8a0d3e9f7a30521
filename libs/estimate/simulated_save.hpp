// Simulates a save that runs while training continues: it reads state in order into a buffer that the disk
// empties. An update waits until what it overwrites has been read, so the read times delay calls of the
// steps. Example: a buffer of 1 GiB and 2 GiB of state on a disk of 1 GiB/s: reads of the second half proceed
// at the disk's pace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun {

struct SavePace {
  double written_per_second = 0;  // by the disk
  std::int64_t buffer = 0;        // bytes read ahead of the disk
};

// One read of a save.
struct SaveLoad {
  double bytes = 0;    // written for it
  double seconds = 0;  // of reading, undelayed
};

// Returns when each read is done, in seconds from the start of the save. Reads follow each other, and pause
// while the buffer is full.
std::vector<double> ends_of_reads(std::span<const SaveLoad> reads, const SavePace& pace);

}  // namespace prun
