#include "plan/work.hpp"

#include <algorithm>

#include "plan/instances.hpp"

namespace prun {

std::int32_t Period::steps() const {
  std::int32_t most = 0;
  for (const PeriodPass& pass : passes) most = std::max(most, pass.behind);
  return most + 1;
}

Work whole_work(const Program& program, std::int64_t microbatches) {
  Work work;
  work.chunks.push_back({0, 0, static_cast<std::int32_t>(chain_of(program).size()), -1, -1});
  for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
    for (const Pass pass : {Pass::forward, Pass::backward}) work.calls.push_back({pass, 0, microbatch});
  return work;
}

namespace {

// Each instance is a stage: microbatches [first, first + count) pass it before the next one.
void add_passes(std::int32_t stages, std::int32_t first, std::int32_t count, Work& work) {
  const auto add = [&](Pass pass, std::int32_t stage) {
    for (std::int32_t i = 0; i < count; ++i) work.calls.push_back({pass, stage, first + i});
  };
  for (std::int32_t stage = 0; stage < stages; ++stage) add(Pass::forward, stage);
  for (std::int32_t stage = stages; stage-- > 0;) add(Pass::backward, stage);
}

Work work_by_instance(const Program& program, std::int64_t microbatches, std::int32_t at_once) {
  Work work;
  work.coordinate = 0;
  const auto stages = static_cast<std::int32_t>(chain_of(program).size());
  for (std::int32_t stage = 0; stage < stages; ++stage)
    work.chunks.push_back({stage, stage, stage + 1, stage > 0 ? 0 : -1, stage + 1 < stages ? 0 : -1});
  for (std::int32_t first = 0; first < microbatches; first += at_once)
    add_passes(stages, first, at_once, work);
  return work;
}

}  // namespace

Work vertical_work(const Program& program, std::int64_t microbatches) {
  return work_by_instance(program, microbatches, static_cast<std::int32_t>(microbatches));
}

Work side_by_side_work(const Program& program, std::int64_t microbatches, std::int32_t lanes) {
  PRUN_CHECK(microbatches % lanes == 0, microbatches, " microbatches in ", lanes, " lanes");
  Work work = work_by_instance(program, microbatches, lanes);
  work.lanes = lanes;
  return work;
}

Work forward_work(Work work) {
  std::erase_if(work.calls, [](const ScheduleCall& call) { return call.pass != Pass::forward; });
  work.split = false;
  work.tied_to = -1;
  work.period = {};
  return work;
}

}  // namespace prun
