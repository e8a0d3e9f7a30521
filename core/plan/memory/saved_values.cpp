#include "plan/memory/saved_values.hpp"

#include <algorithm>
#include <map>

namespace prun {

std::vector<SavedValue> saved_values(const Program& program, const SegmentData& segment, const Homes& homes) {
  std::vector<SavedValue> saved;
  std::map<Id, FunctionKind> writer;
  const auto is_saved = [&](Id id) {
    return std::any_of(saved.begin(), saved.end(), [&](const SavedValue& one) { return one.value == id; });
  };
  for (FunctionKind kind : {FunctionKind::forward, FunctionKind::put_away, FunctionKind::bring_back,
                            FunctionKind::backward, FunctionKind::backward_weight})
    for (Id op_id : segment.ops(kind)) {
      const Op& op = program.op(op_id);
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        const Id value = op.operands[i];
        if (value == none || program.value(value).role != Role::activation || homes.count(value) != 0)
          continue;
        if (op.access(i) == Access::write)
          writer[value] = kind;
        else if (writer.at(value) != kind && !is_saved(value))
          saved.push_back({value, writer.at(value)});
      }
    }
  return saved;
}

}  // namespace prun
