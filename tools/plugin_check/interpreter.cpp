#include "plugin_check/interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.hpp"

namespace prun {

// ------------------------------------------------------------------- interpreter

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

namespace {

// ------------------------------------------------------------------- differentiated

std::unique_ptr<Program> with_backward(std::unique_ptr<Program> program) {
  verify(*program);
  add_backward(*program);
  verify(*program);
  return program;
}

}  // namespace

Differentiated::Differentiated(std::unique_ptr<Program> program, const Objective& objective,
                               KernelsOf kernels, double spread)
    : program_(with_backward(std::move(program))),
      objective_(objective),
      values_(*program_, std::move(kernels)) {
  const RandomStream draw(5, stream_id("operands"));
  std::uint64_t next = 0;
  const auto fill = [&](Id id, double size) {
    std::vector<double> numbers(static_cast<std::size_t>(program_->value(id).elements()));
    for (double& x : numbers) x = size * draw.normal(next++);
    values_.set(id, numbers);
  };
  for (Id id : program_->parameters()) fill(id, spread);
  if (objective_.result != none) fill(arriving(), 1);
}

Id Differentiated::arriving() const { return program_->segment(last()).outgoing_gradient; }

double Differentiated::objective(const Interpreter::Before& before) {
  if (objective_.loss != none)
    values_.set(
        objective_.loss,
        std::vector<double>(static_cast<std::size_t>(program_->value(objective_.loss).elements()), 0.0));
  for (Id segment = 1; segment <= last(); ++segment) {
    if (segment > 1)
      values_.set(program_->segment(segment).incoming,
                  values_.numbers(program_->segment(segment - 1).outgoing));
    values_.run(segment, FunctionKind::forward, before);
  }
  if (objective_.result == none) {
    const std::vector<double> losses = values_.numbers(objective_.loss);
    return values_.numbers(objective_.loss_scale)[0] * std::accumulate(losses.begin(), losses.end(), 0.0);
  }
  const std::vector<double> y = values_.numbers(objective_.result), dy = values_.numbers(arriving());
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

void Differentiated::differentiate(const Interpreter::Before& before) {
  for (Id id : program_->parameters())
    if (const Id gradient = program_->value(id).gradient; gradient != none)
      values_.set(gradient,
                  std::vector<double>(static_cast<std::size_t>(program_->value(id).elements()), 0.0));
  objective(before);
  for (Id segment = last(); segment >= 1; --segment) {
    values_.run(segment, FunctionKind::backward, before);
    if (segment > 1)
      values_.set(program_->segment(segment - 1).outgoing_gradient,
                  values_.numbers(program_->segment(segment).incoming_gradient));
  }
}

std::optional<Differentiated::Miss> Differentiated::compare(double tolerance, std::size_t most_elements) {
  constexpr double step = 1e-5;
  differentiate();
  std::map<Id, std::vector<double>> gradients;  // are read now: a head adds into them with every forward
  for (Id id : program_->parameters())
    gradients[id] = program_->value(id).gradient == none
                        ? std::vector<double>(values_.numbers(id).size(), 0.0)
                        : gradient(id);
  std::optional<Miss> worst;
  double distance = 1;
  for (const auto& [parameter, analytic] : gradients) {
    const Id id = parameter;
    if (program_->value(id).frozen) continue;
    const std::vector<double> start = values_.numbers(id);
    const std::size_t stride = (start.size() + most_elements - 1) / most_elements;
    // The last element is one of them.
    const auto behind = [&](std::size_t i) {
      return i + 1 == start.size() ? i + 1 : std::min(i + stride, start.size() - 1);
    };
    for (std::size_t i = 0; i < start.size(); i = behind(i)) {
      const auto at = [&](double x) {
        std::vector<double> moved = start;
        moved[i] = x;
        values_.set(id, moved);
        return objective();
      };
      const double difference = (at(start[i] + step) - at(start[i] - step)) / (2 * step);
      const double off = std::abs(analytic[i] - difference) / (tolerance * (1 + std::abs(difference)));
      if (off <= distance) continue;  // NaN counts as far off
      distance = std::isnan(off) ? INFINITY : off;
      worst = Miss{id, i, analytic[i], difference};
    }
    values_.set(id, start);
  }
  return worst;
}

}  // namespace prun
