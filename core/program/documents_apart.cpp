// Keeps documents apart: every op that has an operand for it learns where each position's document begins.
#include <string_view>

#include "ops/base_ops.hpp"

#include "program/passes.hpp"

namespace prun {
namespace {

// Returns the index of an op's operand `documents`, or the number of its operands if it has none.
std::size_t documents_operand(const OpDef& def) {
  std::size_t i = 0;
  while (i < def.operand_count && std::string_view(def.operands[i].name) != "documents") ++i;
  return i;
}

}  // namespace

void keep_documents_apart(Program& program, std::int64_t end_of_text) {
  const AttrValue end{"end", static_cast<double>(end_of_text)};
  bool kept = false;
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    Id starts = none;
    const std::vector<Id> ops = program.segment(segment).ops(FunctionKind::forward);
    for (const Id id : ops) {
      const std::size_t operand = documents_operand(*program.op(id).def);
      if (operand == program.op(id).operands.size()) continue;
      if (starts == none) {
        const Id tokens = program.input(segment, "tokens");
        starts =
            program.add_op_creating(segment, FunctionKind::forward, Part::input, base_ops::document_starts,
                                    std::span(&tokens, 1), std::span(&end, 1), id)[0];
      }
      program.replace_operand(id, operand, starts);
      kept = true;
    }
  }
  if (!kept)
    throw_error(
        ErrorCode::bad_input,
        "cannot apply data.mask_documents = true: no op of the model can mask attention between documents; "
        "leave it out");
}

}  // namespace prun
