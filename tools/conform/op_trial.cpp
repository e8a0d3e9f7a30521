#include "conform/op_trial.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/random.hpp"
#include "conform/weigh.hpp"

namespace prun {
namespace {

constexpr Id segment_id = 1;

Precision precision_of(DType type) {
  Precision precision;
  precision.compute = type;
  precision.gradient = OpShape::statistics(type);
  return precision;
}

// Gives a dimension of rows, by its name, another extent.
void widen(ExampleOperand& operand, const OpExample& example, std::size_t operands, std::int64_t width) {
  for (std::size_t i = 0; i < operands; ++i) {
    const ExampleOperand& first = example.operand(i);
    if (first.kind != ExampleOperand::Kind::values || first.rank == 0) continue;
    const std::string_view name = first.dims[first.rank - 1].name.view();
    for (Dim& dim : std::span(operand.dims, static_cast<std::size_t>(operand.rank)))
      if (dim.name.view() == name) dim.extent = width;
    return;
  }
}

}  // namespace

OpTrial::OpTrial(const std::shared_ptr<OpRegistry>& registry, const OpExample& example, DType type,
                 KernelsOf kernels, std::int64_t width)
    : example_(example), def_(registry->find(example.op())), kernels_(std::move(kernels)), width_(width) {
  program_ = write(registry, type);
  if (def_.gradient) {
    differentiated_ = std::make_unique<Differentiated>(std::move(program_), objective_, kernels_);
    draw(differentiated_->values(), differentiated_->program());
  } else {
    forward_ = std::make_unique<Interpreter>(*program_, kernels_);
    draw(*forward_, *program_);
  }
}

// Returns a value for an operand that the op reads or updates: drawn values are parameters, numbers are an
// input.
Id OpTrial::operand(std::size_t i, ExampleOperand example) {
  if (width_ > 0) widen(example, example_, def_.operand_count, width_);
  using Kind = ExampleOperand::Kind;
  if (example.kind == Kind::absent) return none;
  const std::string name = def_.operands[i].name;
  if (example.kind == Kind::scalar) return program_->runtime(name);
  const Array<Dim> dims{example.dims, static_cast<std::uint64_t>(example.rank)};
  if (example.kind == Kind::values)
    return program_->add_parameter(segment_id, {Text(std::string_view(name)), dims, zeros(), false});
  if (example.kind == Kind::statistics) return statistics(name, dims);
  Value value;
  value.name = name;
  value.role = example.kind == Kind::sums ? Role::runtime : Role::input;
  value.dtype = example.dtype;
  value.dims.assign(dims.begin(), dims.end());
  value.segment = program_->step_segment();
  return program_->add_value(std::move(value));
}

// Adds a parameter, so that differences are taken of it too.
Id OpTrial::statistics(const std::string& name, Array<Dim> dims) {
  const Id id = program_->add_parameter(segment_id, {Text(std::string_view(name)), dims, zeros(), false});
  program_->value(id).dtype = OpShape::statistics(program_->precision().compute);
  return id;
}

// Returns the op's only result, or the weighed sum of all that have gradients.
Id OpTrial::result(const Op& op) {
  std::vector<Id> results;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const bool asked = example_.results() == 0 ? results.empty() : (example_.results() >> i & 1u) != 0;
    if (asked && op.access(i) == Access::write && is_real(program_->value(op.operands[i]).dtype))
      results.push_back(op.operands[i]);
  }
  if (results.size() < 2) return results.empty() ? none : results[0];
  const auto append = [&](const char* kind, Id a, Id b) {
    const Id pair[] = {a, b};
    return program_->add_op_creating(segment_id, FunctionKind::forward, Part::input, kind, pair, {}, none)[0];
  };
  Id sum = none;
  for (Id id : results) {
    Value weights = program_->value(id);
    weights.name = "weights of " + weights.name;
    weights.role = Role::input;
    weights.segment = program_->step_segment();
    const Id weighed = append("trial_weigh", id, program_->add_value(std::move(weights)));
    sum = sum == none ? weighed : append("add", sum, weighed);
  }
  return sum;
}

std::unique_ptr<Program> OpTrial::write(const std::shared_ptr<OpRegistry>& registry, DType type) {
  program_ = std::make_unique<Program>(registry, precision_of(type), ModelContext{2, 4});
  program_->add_segment("trial", 1);
  std::vector<Id> inputs;
  for (std::size_t i = 0; i < def_.operand_count; ++i) {
    if (def_.operands[i].access == Access::write) continue;
    inputs.push_back(operand(i, example_.operand(i)));
    if (static_cast<int>(i) == example_.loss()) objective_.loss = inputs.back();
    if (static_cast<int>(i) == example_.loss_scale()) objective_.loss_scale = inputs.back();
  }
  const Array<AttrValue> attrs = example_.attrs();
  program_->add_op_creating(segment_id, FunctionKind::forward, Part::input, def_.kind, inputs,
                            {attrs.data, attrs.size}, none);
  const Id op = program_->segment(segment_id).ops(FunctionKind::forward).front();
  operands_ = program_->op(op).operands;
  if (example_.loss() < 0) objective_.result = result(program_->op(op));
  if (def_.gradient && objective_.result == none && objective_.loss == none)
    throw_error(ErrorCode::bad_input, "the example of op '", def_.kind,
                "' names no loss, and the op has no result that gradients come back to");
  if (def_.gradient && objective_.result != none) program_->set_outgoing(segment_id, objective_.result);
  return std::move(program_);
}

void OpTrial::draw(Interpreter& values, const Program& program) const {
  const RandomStream stream(5, stream_id(def_.kind));
  std::uint64_t next = 0;
  using Kind = ExampleOperand::Kind;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const ExampleOperand& example = example_.operand(i);
    if (example.kind == Kind::absent) continue;
    std::vector<double> numbers(static_cast<std::size_t>(program.value(operands_[i]).elements()));
    for (double& x : numbers) {
      const double unit = stream.uniform_double(next++), width = example.high - example.low;
      x = example.kind == Kind::numbers ? example.low + std::floor(unit * (width + 1))
                                        : example.low + unit * width;
    }
    values.set(operands_[i], numbers);
  }
  for (Id id : program.inputs()) {
    if (!program.value(id).name.starts_with("weights of ")) continue;
    std::vector<double> numbers(static_cast<std::size_t>(program.value(id).elements()));
    for (double& x : numbers) x = stream.normal(next++);
    values.set(id, numbers);
  }
}

void OpTrial::run(const Interpreter::Before& before) {
  if (differentiated_)
    differentiated_->differentiate(before);
  else
    forward_->run(segment_id, FunctionKind::forward, before);
}

std::string OpTrial::gradient_problem() {
  constexpr double tolerance = 1e-6;
  constexpr std::size_t most_elements = 32;
  const auto miss = differentiated_->compare(tolerance, most_elements);
  if (!miss) return "";
  return detail::concat("op '", def_.kind, "': the gradient of '",
                        differentiated_->program().value(miss->parameter).name, "' is ", miss->gradient,
                        " in element ", miss->element, ", and differences of what the op computes say ",
                        miss->difference);
}

}  // namespace prun
