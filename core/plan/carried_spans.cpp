#include "plan/carried_spans.hpp"

#include <algorithm>

#include "plan/instances.hpp"

namespace prun {
namespace {

bool uses(const Program& program, Id segment, const CarriedValue& carried) {
  for (const std::vector<Id>& function : program.segment(segment).functions)
    for (const Id op : function)
      for (const Id operand : program.op(op).operands)
        if (operand != none && (operand == carried.value || operand == carried.gradient)) return true;
  return false;
}

}  // namespace

std::vector<CarriedSpan> carried_spans(const Program& program) {
  std::vector<CarriedSpan> spans;
  if (program.carried().empty()) return spans;
  const Numbered<Instance> chain = chain_of(program);
  for (const CarriedValue& carried : program.carried()) {
    CarriedSpan span{carried};
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      if (chain[i].segment == program.value(carried.value).segment) span.from = span.last = at;
      if (uses(program, chain[i].segment, carried)) span.last = at;
    }
    spans.push_back(span);
  }
  return spans;
}

}  // namespace prun
