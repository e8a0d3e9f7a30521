#include "tools/bench/fp8_errors/capture.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "execute/binding.hpp"

namespace prun::fp8_errors {
namespace {

std::optional<Which> which_of(std::string_view op) {
  if (op == "linear") return Which::forward;
  if (op == "linear_input_grad") return Which::input_gradient;
  if (op == "linear_weight_grad") return Which::weight_gradient;
  return {};
}

// Returns the number of the operand that is the weight, or its gradient.
std::size_t weight_operand(Which which) { return which == Which::weight_gradient ? 2 : 1; }

class FactorProbe final : public Probe {
 public:
  explicit FactorProbe(const Assembly& assembly) : assembly_(assembly) {
    assembly.each_parameter([&](Id parameter, std::int32_t) {
      const Value& value = assembly.program().value(parameter);
      names_[parameter] = value.name;
      if (value.gradient != none) names_[value.gradient] = value.name;
    });
  }

  void watch(const PlanMemory& memory) { memory_ = &memory; }

  bool each_kernel() const noexcept override { return true; }
  void begin_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void end_kernel(std::int32_t, const Call& call, std::size_t index, double) noexcept override {
    if (!memory_ || call.microbatch != 0) return;
    try {
      take(call, assembly_.plan().steps(call)[index]);
    } catch (...) {
      failed_ = std::current_exception();
    }
  }

  std::vector<Captured> taken() {
    if (failed_) std::rethrow_exception(failed_);
    return std::move(captured_);
  }

 private:
  void take(const Call& call, const PlannedStep& step) {
    if (step.op == none) return;
    const Op& op = assembly_.program().op(step.op);
    const std::optional<Which> which = which_of(op.kind());
    const std::int64_t layer = assembly_.plan().instances[call.instance].layer;
    if (!which || !in_fp8(op, layer)) return;
    const auto name = names_.find(op.operands[weight_operand(*which)]);
    if (name == names_.end() || !seen_.insert({name->first, layer, *which}).second) return;
    Captured& one = captured_.emplace_back();
    one.layer = layer_name(assembly_, call.instance);
    one.weight = name->second;
    one.number = layer;
    one.which = *which;
    one.op = op.kind();
    one.call.attrs = op.attrs;
    one.call.attrs[2].i = one.call.attrs[3].i = 0;  // says that all layers do
    for (std::size_t i = 0; i < op.operands.size(); ++i) one.call.operands.push_back(operand(call, step, i));
  }

  // Says whether an op multiplies numbers in fp8, by attributes 1 to 3.
  static bool in_fp8(const Op& op, std::int64_t layer) {
    const std::vector<Attr>& attrs = op.attrs;
    return attrs[1].i == 1 && layer >= attrs[2].i && (attrs[3].i == 0 || layer < attrs[3].i);
  }

  // Factors are read; what is written stays zero. A bias is left out, since it is no part of the product.
  TrialOperand operand(const Call& call, const PlannedStep& step, std::size_t i) const {
    const Op& op = assembly_.program().op(step.op);
    TrialOperand made;
    if (op.operands[i] == none || op.def->operands[i].optional) return made;
    made.shape = assembly_.program().shape(op).operand[i];
    made.bytes.resize(static_cast<std::size_t>(made.shape.bytes()));
    if (op.access(i) != Access::read) return made;
    const std::byte* const from = memory_->at(assembly_.plan().resolve(call, step.operands[i].address, 0));
    std::copy(from, from + made.bytes.size(), made.bytes.begin());
    return made;
  }

  const Assembly& assembly_;
  const PlanMemory* memory_ = nullptr;
  std::map<Id, std::string> names_;
  std::set<std::tuple<Id, std::int64_t, Which>> seen_;  // passes may compute again
  std::vector<Captured> captured_;
  std::exception_ptr failed_;
};

}  // namespace

std::vector<Captured> capture(const Recipe& recipe, PluginHost& plugins, const AllNumbers& weights,
                              std::int64_t sequences) {
  const std::string count = std::to_string(sequences);
  const Assembly assembly(compared(recipe, plugins, "", true)
                              .with("device.plugin", "cpu")
                              .with("device.fuse", "false")
                              .with("batch.global", count)
                              .with("batch.micro", count),
                          plugins);
  FactorProbe probe(assembly);
  Membership membership;
  membership.probes = [&](const Assembly&, Communicators*) { return std::vector<Probe*>{&probe}; };
  Trainer trainer(assembly, plugins, std::move(membership));
  put_weights(trainer, weights);
  probe.watch(trainer.memory());
  trainer.step();
  std::vector<Captured> all = probe.taken();
  std::stable_sort(all.begin(), all.end(), [](const Captured& one, const Captured& other) {
    return std::pair(one.which, one.number) < std::pair(other.which, other.number);
  });
  return all;
}

}  // namespace prun::fp8_errors
