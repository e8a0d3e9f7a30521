#include "plan/launch_limit.hpp"

namespace prun {
namespace {

bool of_microbatch(FunctionKind kind) {
  return kind == FunctionKind::load || kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight || kind == FunctionKind::put_away ||
         kind == FunctionKind::bring_back;
}

struct Launches {
  std::int64_t each = 0, once = 0;  // launches of a microbatch, and those outside microbatches
};

Launches count(const Program& program) {
  Launches launches;
  for (Id id = 0; id < program.segment_count(); ++id)
    for (int k = 0; k < function_kinds; ++k) {
      const auto kind = static_cast<FunctionKind>(k);
      const SegmentData& segment = program.segment(id);
      (of_microbatch(kind) ? launches.each : launches.once) +=
          segment.repeat * static_cast<std::int64_t>(segment.ops(kind).size());
    }
  return launches;
}

}  // namespace

std::int64_t launches_of(const Program& program, std::int64_t microbatches) {
  const auto [each, once] = count(program);
  const bool few = once <= most_launches && (each == 0 || microbatches <= (most_launches - once) / each);
  return few ? once + microbatches * each : most_launches + 1;
}

void check_launches(const Program& program, std::int64_t microbatches) {
  if (launches_of(program, microbatches) <= most_launches) return;
  const auto [each, once] = count(program);
  throw_error(
      ErrorCode::bad_input, "cannot plan a step of ", microbatches, " microbatches with ", each,
      " kernels each and ", once, " further kernels: at most ", most_launches,
      " launches can be planned; take a larger batch.micro, a smaller batch.global or fewer model.layers");
}

}  // namespace prun
