#include "plan/work.hpp"

#include <algorithm>

#include "plan/instances.hpp"

namespace prun {

Work whole_work(const Program& program, std::int64_t microbatches) {
  Work work;
  work.chunks.push_back({0, 0, static_cast<std::int32_t>(chain_of(program).size()), -1, -1});
  for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
    for (const Pass pass : {Pass::forward, Pass::backward}) work.calls.push_back({pass, 0, microbatch});
  return work;
}

Work vertical_work(const Program& program, std::int64_t microbatches) {
  Work work;
  work.coordinate = 0;
  const auto stages = static_cast<std::int32_t>(chain_of(program).size());
  const auto add_calls = [&](Pass pass, std::int32_t stage) {
    for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
      work.calls.push_back({pass, stage, microbatch});
  };
  for (std::int32_t stage = 0; stage < stages; ++stage) {
    work.chunks.push_back({stage, stage, stage + 1, stage > 0 ? 0 : -1, stage + 1 < stages ? 0 : -1});
    add_calls(Pass::forward, stage);
  }
  for (std::int32_t stage = stages; stage-- > 0;) add_calls(Pass::backward, stage);
  return work;
}

Work forward_work(Work work) {
  std::erase_if(work.calls, [](const ScheduleCall& call) { return call.pass != Pass::forward; });
  work.split = false;
  work.tied_to = -1;
  return work;
}

}  // namespace prun
