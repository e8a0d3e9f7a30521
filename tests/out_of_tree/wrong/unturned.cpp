// A mistake: backward begins with the chunk that is nearest to the embedding, whose gradients come last.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class Unturned final : public Schedule {
 public:
  explicit Unturned(const Options&) {}

  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t) override {
    std::vector<ScheduleCall> calls;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk)
        for (std::int32_t i = 0; i < shape.microbatches; ++i) calls.push_back({pass, chunk, i});
    return calls;
  }
};

}  // namespace

PRUN_PLUGIN(schedule, Unturned, "unturned", "1.0.0", "Goes back in the order in which it came",
            "backward=whole", "");
