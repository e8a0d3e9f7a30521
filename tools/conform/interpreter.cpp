#include "conform/interpreter.hpp"

#include <algorithm>

namespace prun {

KernelsOf kernels_of(DeviceInterface& device) {
  return [&device](std::string_view op) { return device.kernel(op); };
}

Interpreter::Interpreter(const Program& program, KernelsOf kernels)
    : program_(program), kernels_(std::move(kernels)) {}

TrialOperand& Interpreter::operand(Id id) {
  TrialOperand& operand = values_[id];
  if (operand.shape.present) return operand;
  const Value& value = program_.value(id);
  operand.shape.present = true;
  operand.shape.dtype = value.dtype;
  operand.shape.rank = static_cast<std::int32_t>(value.dims.size());
  std::copy(value.dims.begin(), value.dims.end(), operand.shape.dims);
  operand.bytes.resize(static_cast<std::size_t>(value.bytes()));
  return operand;
}

std::vector<double> Interpreter::numbers(Id id) {
  const TrialOperand& value = operand(id);
  std::vector<double> numbers(value.elements());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = value.number(i);
  return numbers;
}

void Interpreter::set(Id id, const std::vector<double>& numbers) {
  TrialOperand& value = operand(id);
  for (std::size_t i = 0; i < numbers.size(); ++i) value.set(i, numbers[i]);
}

void Interpreter::run(Id segment, FunctionKind kind, const Before& before) {
  for (Id op : program_.segment(segment).ops(kind)) run_op(program_.op(op), before);
}

void Interpreter::run_op(const Op& op, const Before& before) {
  if (op.exchanges_in_place()) return;
  if (op.exchange()) {
    operand(op.operands[1]).bytes = operand(op.operands[0]).bytes;
    return;
  }
  KernelCall call;
  call.def = op.def;
  call.attrs = op.attrs;
  for (Id id : op.operands) call.operands.push_back(id == none ? TrialOperand{} : operand(id));
  const KernelDef* const kernel = kernels_(op.kind());
  if (!kernel || !kernel->select(call.shape()))
    throw_error(ErrorCode::unsupported, "op '", op.kind(), "' has no kernel for the CPU and ",
                name_of(program_.precision().compute));
  if (before) before(*kernel, call);
  const std::vector<TrialOperand> after = launch(*kernel, call, {});
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] != none && op.access(i) != Access::read)
      operand(op.operands[i]).bytes = after[i].bytes;
}

}  // namespace prun
