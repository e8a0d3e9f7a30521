#include "estimate/simulated_save.hpp"

#include <algorithm>

namespace prun {

std::vector<double> ends_of_reads(std::span<const SaveLoad> reads, const SavePace& pace) {
  std::vector<double> ends;
  double now = 0, bytes = 0;
  for (const SaveLoad& read : reads) {
    bytes += read.bytes;
    now += read.seconds;
    const double behind = bytes - static_cast<double>(pace.buffer);  // written to the disk by then
    if (behind > 0) now = std::max(now, behind / pace.written_per_second);
    ends.push_back(now);
  }
  return ends;
}

}  // namespace prun
