// A pipeline schedule: breadth first over the chunks a rank holds. All microbatches go through its first
// chunk, then all through the next; backwards the other way round. It keeps everything alive, as gpipe does,
// but the gradients of a chunk are complete long before the step ends, so that summing them over other ranks
// can overlap.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class LoopedBfs final : public Schedule {
 public:
  explicit LoopedBfs(const Options& options) : most_alive_(options.integer("most_alive")) {}

  std::string problem(const ScheduleShape& shape) override {
    const std::int64_t alive = std::int64_t{shape.microbatches} * shape.chunks;
    if (most_alive_ == 0 || alive <= most_alive_) return "";
    return detail::concat("a rank would keep ", alive, " microbatches alive, and most_alive is ", most_alive_,
                          "; lower microbatches or chunks, or raise it");
  }

  // Chunks of a rank lie `ranks` stages apart: what stage() says where it is not overridden.
  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t) override {
    std::vector<ScheduleCall> calls;
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk)
      for (std::int32_t i = 0; i < shape.microbatches; ++i) calls.push_back({Pass::forward, chunk, i});
    for (std::int32_t chunk = shape.chunks - 1; chunk >= 0; --chunk)
      for (std::int32_t i = 0; i < shape.microbatches; ++i) calls.push_back({Pass::backward, chunk, i});
    return calls;
  }

 private:
  std::int64_t most_alive_;
};

}  // namespace

PRUN_PLUGIN(schedule, LoopedBfs, "looped-bfs", "1.0.0", "All microbatches through one chunk after the other",
            "backward=whole",
            "most_alive | int | 0 | 0..1000000 | Maximum number of live microbatches of a rank, counted per "
            "chunk; 0: no limit\n");
