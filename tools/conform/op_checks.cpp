#include "conform/op_checks.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "conform/device_launches.hpp"
#include "conform/split_trial.hpp"
#include "conform/weigh.hpp"
#include "explain/builtin_examples.hpp"

namespace prun {
namespace {

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
