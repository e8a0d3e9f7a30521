#include "plan/function/kernel_choice.hpp"

#include <algorithm>
#include <sstream>

#include "plan/op_refusal.hpp"

namespace prun {
namespace {

[[noreturn]] void refuse_kernel(const Op& op, const OpShape& shape, const PlanDevice& device, bool offered) {
  std::ostringstream types;
  for (int i = 0; i < shape.count; ++i)
    if (shape.operand[i].present) types << (i ? ", " : "") << name_of(shape.operand[i].dtype);
  throw_error(ErrorCode::unsupported, "device '", device.name, "' has no kernel for op '", op.kind(),
              "' on (", types.str(), ")",
              offered ? "; choose another precision" : "; load a plugin that brings one");
}

std::int64_t workspace_of(const Op& op, const OpShape& shape, const PlanDevice& device,
                          const OfferedKernel& offered) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const std::int64_t bytes = offered.def->workspace(shape, device.threads);
  if (bytes < 0 || bytes > most)
    throw_error(ErrorCode::bad_input, offered.by, ": the kernel of op '", op.kind(), "' asks for ", bytes,
                " bytes of workspace; its workspace() must give 0 to ", most);
  return bytes;
}

}  // namespace

void check_parts_agree(const Program& program, const Op& op, const OpShape& parts) {
  const std::span attrs(op.def->attrs, op.def->attr_count);
  if (!std::all_of(attrs.begin(), attrs.end(), [](const auto& attr) { return attr.real; })) return;
  OpShape told = parts;
  const Status status = op.def->rule(&told);
  if (!status.ok()) refuse_op(program, op, "of the parts that a rank has: ", status.message);
  for (std::int32_t i = 0; i < parts.count; ++i)
    if (parts.operand[i].present && told.operand[i].elements() != parts.operand[i].elements())
      refuse_op(program, op, "operand '", op.def->operands[i].name, "' has ", parts.operand[i].elements(),
                " elements on a rank, where the others make ", told.operand[i].elements());
}

std::int64_t choose_kernel(const Op& op, const OpShape& shape, const PlanDevice& device, PlannedStep& step) {
  const OfferedKernel offered = device.kernel(op.kind());
  if (offered.def) step.kernel = offered.def->select(shape);
  if (offered.def) step.writes_first = offered.def->writes_first;
  if (!step.kernel) refuse_kernel(op, shape, device, offered.def != nullptr);
  return offered.def->workspace ? workspace_of(op, shape, device, offered) : 0;
}

}  // namespace prun
