#include "plugin_check/op_checks.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>

#include "base/random.hpp"
#include "base/text.hpp"
#include "execute/device_memory.hpp"
#include "explain/builtin_examples.hpp"
#include "plugin_check/kernel_trial.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- weigh

struct Weigh {
  static constexpr const char* kind = "trial_weigh";
  static constexpr const char* help = "s = the sum of y * weights";
  static constexpr OperandDef operands[] = {{"y"}, {"weights"}, {"s", Access::write}};
  static void rule(OpShape& s) {
    s.scalar(2, s.operand[0].dtype);
    s.sum(0, 0, s.operand[0].rank);
  }
  static void gradient(const Gradient& g) { g.input(0, "trial_weighed", {g.operand(1), g.arrived(2)}); }
};

struct Weighed {
  static constexpr const char* kind = "trial_weighed";
  static constexpr const char* help = "dy = weights * ds";
  static constexpr OperandDef operands[] = {{"weights"}, {"ds"}, {"dy", Access::write}};
  static void rule(OpShape& s) { s.like(2, 0); }
};

template <class T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, bf16>)
    return bf16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

template <class T>
void weigh(const KernelArgs& args, const KernelContext&) {
  const Tensor &y = args.operands[0], &weights = args.operands[1];
  double sum = 0;
  for (std::int64_t i = 0; i < y.elements(); ++i)
    sum += static_cast<double>(y.as<const T>()[i]) * static_cast<double>(weights.as<const T>()[i]);
  *args.operands[2].as<T>() = rounded<T>(sum);
}

template <class T>
void weighed(const KernelArgs& args, const KernelContext&) {
  const Tensor &weights = args.operands[0], &dy = args.operands[2];
  const T ds = *args.operands[1].as<const T>();
  for (std::int64_t i = 0; i < dy.elements(); ++i)
    dy.as<T>()[i] = static_cast<T>(weights.as<const T>()[i] * ds);
}

template <Kernel in_fp64, Kernel in_fp32, Kernel in_bf16>
Kernel select(const OpShape& shape) {
  switch (shape.operand[0].dtype) {
    case DType::f64: return in_fp64;
    case DType::f32: return in_fp32;
    case DType::bf16: return in_bf16;
    default: return nullptr;
  }
}

constexpr KernelDef kernels[] = {{Weigh::kind, select<weigh<double>, weigh<float>, weigh<bf16>>},
                                 {Weighed::kind, select<weighed<double>, weighed<float>, weighed<bf16>>}};

}  // namespace

void add_weigh_ops(OpRegistry& registry) {
  registry.add(op_def<Weigh>(), "prun");
  registry.add(op_def<Weighed>(), "prun");
}

KernelsOf with_weigh_kernels(KernelsOf others) {
  return [others = std::move(others)](std::string_view op) -> const KernelDef* {
    for (const KernelDef& kernel : kernels)
      if (op == kernel.op) return &kernel;
    return others(op);
  };
}

namespace {

// ------------------------------------------------------------------- op trial

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

namespace {

// ------------------------------------------------------------------- device launches

// Returns how far results may differ after sums in another order, relative to the largest number: the
// coarsest type among the operands decides.
double tolerance_of(const KernelCall& call) {
  double tolerance = 0;
  for (const TrialOperand& operand : call.operands) {
    if (!operand.shape.present) continue;
    const DType type = operand.shape.dtype;
    tolerance = std::max(tolerance, type == DType::bf16  ? 3e-2
                                    : type == DType::f16 ? 4e-3
                                    : type == DType::f32 ? 1e-4
                                    : type == DType::f64 ? 1e-9
                                                         : 0);
  }
  return tolerance;
}

// Results are NaN before, so that no kernel adds to them or leaves some as they were.
std::vector<std::byte> bytes_before(const KernelCall& call, std::size_t i) {
  const std::vector<std::byte>& bytes = call.operands[i].bytes;
  return holds_nothing(call, i) ? std::vector(bytes.size(), static_cast<std::byte>(LaunchManner().filling))
                                : bytes;
}

std::int64_t room(std::int64_t bytes) { return std::max<std::int64_t>(bytes, 1); }

}  // namespace

DeviceLaunches::DeviceLaunches(DeviceInterface& device) : device_(device) {
  raise(device.info(&info_));
  const DeviceMemory there_is_some(device, Space::device, 4096);
}

void DeviceLaunches::compare(const KernelDef& there, const KernelDef& on_cpu, const KernelCall& call) {
  compare(call, launch(there, call), prun::launch(on_cpu, call, {}), "");
  if (const auto sums = begun_sums(there, call))
    compare(call, launch(there, sums->begun), prun::launch(on_cpu, sums->added, {}),
            " as it begins the sum (writes_first)");
}

void DeviceLaunches::compare(const KernelCall& call, const std::vector<TrialOperand>& got,
                             const std::vector<TrialOperand>& want, const char* when) const {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!want[i].shape.present || call.def->operands[i].access == Access::read) continue;
    double largest = 0;
    for (std::size_t e = 0; e < want[i].elements(); ++e)
      largest = std::max(largest, std::abs(want[i].number(e)));
    const double tolerance = is_real(want[i].shape.dtype) ? tolerance_of(call) * largest : 0;
    for (std::size_t e = 0; e < want[i].elements(); ++e)
      if (!(std::abs(got[i].number(e) - want[i].number(e)) <= tolerance))
        throw_error(ErrorCode::bad_input, "the kernel of ", operand_text(*call.def, i), " gives ",
                    got[i].number(e), " in element ", e, " in ", name_of(want[i].shape.dtype), " on '",
                    info_.name.view(), "'", when, ", and the CPU ", want[i].number(e));
  }
}

std::vector<TrialOperand> DeviceLaunches::launch(const KernelDef& kernel, const KernelCall& call) {
  const OpShape shape = call.shape();
  Launch launch;
  launch.kernel = kernel.select(shape);
  if (!launch.kernel)
    throw_error(ErrorCode::unsupported, "'", info_.name.view(), "' has no kernel for these types and shapes");
  const std::int64_t workspace_bytes = kernel.workspace ? kernel.workspace(shape, info_.threads) : 0;
  const DeviceMemory workspace(device_, Space::device, room(workspace_bytes));
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<Tensor> tensors(call.operands.size());
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const TrialOperand& operand = call.operands[i];
    memory.push_back(std::make_unique<DeviceMemory>(device_, Space::device, room(operand.shape.bytes())));
    if (operand.shape.present) tensors[i] = tensor_of(operand, memory.back()->data());
    if (call.def->operands[i].access != Access::read) launch.args.changes |= 1u << i;
  }
  launch.op = call.def->kind;
  launch.args.operands = tensors.data();
  launch.args.operand_count = static_cast<std::int32_t>(tensors.size());
  launch.args.attrs = call.attrs.data();
  launch.args.workspace = workspace.data();
  launch.args.workspace_bytes = workspace_bytes;
  launch.args.first = call.begins;
  SideQueue queue(device_, "trial", true);  // is destroyed first, with the work bound to the memory
  queue.attach();
  BoundWork work = nullptr;
  raise(device_.bind(queue.handle(), &launch, 1, &work));
  for (std::size_t i = 0; i < memory.size(); ++i) {  // bind() may have spoilt it
    const std::vector<std::byte> bytes = bytes_before(call, i);
    raise(device_.upload(memory[i]->data(), bytes.data(), call.operands[i].shape.bytes()));
  }
  raise(device_.run(queue.handle(), work));
  queue.await();
  std::vector<TrialOperand> after = call.operands;
  for (std::size_t i = 0; i < memory.size(); ++i)
    raise(device_.download(after[i].bytes.data(), memory[i]->data(), call.operands[i].shape.bytes()));
  return after;
}

namespace {

// ------------------------------------------------------------------- op checks

constexpr DType types[] = {DType::f64, DType::f32, DType::bf16};

// Counts the results of trying a plugin's ops.
class Tally {
 public:
  template <class Counts>
  Tally(const OpsOnTrial& trial, Counts&& counts) : trial_(trial) {
    for (const OpDef& op : trial.ops)
      if (counts(op)) untried_[op.kind];
  }

  bool is_own(std::string_view op) const {
    return std::any_of(trial_.ops.begin(), trial_.ops.end(),
                       [&](const OpDef& own) { return op == own.kind; });
  }
  void tried(std::string_view op) {
    if (untried_.erase(std::string(op)) != 0) ++count_;
  }
  // Notes that the op has an example, which could not be used.
  void refused(std::string_view op, const std::string& why) {
    if (const auto found = untried_.find(std::string(op)); found != untried_.end()) found->second = why;
  }
  void leave_out(const std::string& what) { left_out_.insert(what); }

  // `why` says why an op that nothing was said of was not tried.
  CheckFinding finding(const std::string& why) {
    std::map<std::string, std::vector<std::string>> by_reason;
    for (const auto& [op, refusal] : untried_)
      by_reason[refusal.empty() ? why : refusal].push_back(in_quotes(op));
    for (const auto& [reason, ops] : by_reason) left_out_.insert(join(ops, ", ") + " (" + reason + ")");
    const std::vector<std::string> left(left_out_.begin(), left_out_.end());
    std::string detail = detail::concat(count_, count_ == 1 ? " op" : " ops");
    if (!left.empty()) detail += "; not checked: " + join(left, ", ");
    return {detail, count_ > 0};
  }

 private:
  const OpsOnTrial& trial_;
  std::map<std::string, std::string> untried_;  // says why, where there is an example
  std::set<std::string> left_out_;
  int count_ = 0;
};

bool has_kernel(const OpDef& op) { return !op.exchange; }
bool has_gradient(const OpDef& op) { return op.gradient != nullptr; }

constexpr const char* no_example = "no example of it, nor does another op's gradient run it";

// Calls body(kernel, call) for each launch of one of the plugin's own kernels, in all types that they
// support.
template <class Body>
void each_launch(const OpsOnTrial& trial, Tally& tally, std::span<const DType> in, Body&& body) {
  for (const OpExample& example : trial.examples)
    for (const DType type : in) {
      trial.doing(detail::concat("the example of op '", example.op(), "' in ", name_of(type)));
      OpTrial op(trial.registry, example, type, trial.kernels);
      try {
        op.run([&](const KernelDef& kernel, const KernelCall& call) {
          if (!tally.is_own(call.def->kind)) return;
          trial.doing(detail::concat("the kernel of op '", call.def->kind, "' in ", name_of(type)));
          body(kernel, call);
          tally.tried(call.def->kind);
        });
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
        tally.refused(example.op(), error.what());
      }
    }
}

}  // namespace

CheckFinding check_memory(const OpsOnTrial& trial) {
  Tally tally(trial, has_kernel);
  each_launch(trial, tally, types, try_memory);
  return tally.finding(no_example);
}

CheckFinding check_threads(const OpsOnTrial& trial) {
  Tally tally(trial, has_kernel);
  std::set<std::string> alone;
  each_launch(trial, tally, types, [&](const KernelDef& kernel, const KernelCall& call) {
    if (!try_threads(kernel, call)) alone.insert(call.def->kind);
  });
  for (const std::string& op : alone)
    tally.leave_out(in_quotes(op) + " with more than one piece of work (add a larger example)");
  return tally.finding(no_example);
}

namespace {

// A width that the example does not name may be one that the op cannot have: then it was not to be tried.
void try_wide_rows(const OpsOnTrial& trial, const OpExample& example) {
  if (trial.wide == 0) return;
  trial.doing(detail::concat("the gradient of op '", example.op(), "' with rows of ", trial.wide));
  std::string problem;
  try {
    problem = OpTrial(trial.registry, example, DType::f64, trial.kernels, trial.wide).gradient_problem();
  } catch (const Error&) {
    return;
  }
  if (!problem.empty()) throw_error(ErrorCode::bad_input, problem, ", with rows of ", trial.wide);
}

}  // namespace

CheckFinding check_gradients(const OpsOnTrial& trial) {
  if (std::none_of(trial.ops.begin(), trial.ops.end(), has_gradient))
    return {"none of its ops has one, as an update needs none"};
  Tally tally(trial, has_gradient);
  for (const OpExample& example : trial.examples) {
    if (!has_gradient(trial.registry->find(example.op()))) continue;
    trial.doing(detail::concat("the gradient of op '", example.op(), "'"));
    try {
      OpTrial op(trial.registry, example, DType::f64, trial.kernels);
      if (const std::string problem = op.gradient_problem(); !problem.empty())
        throw_error(ErrorCode::bad_input, problem);
      try_wide_rows(trial, example);
      tally.tried(example.op());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      tally.refused(example.op(), error.what());
    }
  }
  return tally.finding("no example of it");
}

CheckFinding check_marks(const OpsOnTrial& trial) {
  Tally tally(trial, has_kernel);
  constexpr DType exact[] = {DType::f64};
  each_launch(trial, tally, exact, [&](const KernelDef& kernel, const KernelCall& call) {
    for (const std::string& dim : try_marks(kernel, call)) tally.leave_out(dim);
  });
  return tally.finding(no_example);
}

CheckFinding check_on_device(const OpsOnTrial& trial, DeviceInterface& device, const KernelsOf& there) {
  Tally tally(trial, [&](const OpDef& op) { return has_kernel(op) && there(op.kind); });
  DeviceLaunches launches(device);
  each_launch(trial, tally, types, [&](const KernelDef& kernel, const KernelCall& call) {
    if (const KernelDef* const own = there(call.def->kind)) launches.compare(*own, kernel, call);
  });
  return tally.finding(no_example);
}

OpsOnTrial builtin_ops_on_trial(const KernelsOf& kernels, Doing doing) {
  OpsOnTrial trial{std::make_shared<OpRegistry>(), builtin_ops(),    builtin_examples(),
                   with_weigh_kernels(kernels),    std::move(doing), 0};
  add_weigh_ops(*trial.registry);
  return trial;
}

OpsOnTrial ops_of(OpPluginInterface& plugin, const std::string& name, KernelsOf others, Doing doing) {
  OpsOnTrial trial;
  trial.wide = 2051;
  trial.registry = std::make_shared<OpRegistry>();
  add_weigh_ops(*trial.registry);
  trial.doing = std::move(doing);
  Array<OpDef> ops;
  raise(plugin.ops(&ops));
  trial.ops.assign(ops.begin(), ops.end());
  for (const OpDef& op : ops) trial.registry->add(op, name);
  Array<OpExample> examples;
  raise(plugin.examples(&examples));
  trial.examples.assign(examples.begin(), examples.end());
  Array<DeviceKernel> kernels;
  raise(plugin.kernels(&kernels));
  for (const DeviceKernel& kernel : kernels) check_kernel(kernel, name);
  trial.kernels =
      with_weigh_kernels([kernels, others = std::move(others)](std::string_view op) -> const KernelDef* {
        for (const DeviceKernel& own : kernels)
          if (std::string_view(own.device) == "cpu" && op == own.kernel.op) return &own.kernel;
        return others(op);
      });
  return trial;
}

}  // namespace prun
