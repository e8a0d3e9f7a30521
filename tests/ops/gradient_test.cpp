// Every op: gradients against finite differences in fp64, values and gradients against PyTorch.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"
#include "base/safetensors.hpp"
#include "ops/op_cases.hpp"
#include "support/assembly_fixture.hpp"
#include "support/interpreter.hpp"

namespace prun::test {
namespace {

constexpr Id segment_id = 1;

Precision precision_of(DType type) {
  Precision precision;
  precision.compute = type;
  precision.gradient = OpShape::statistics(type);
  return precision;
}

// One case, differentiated, with a value for every operand.
class Case {
 public:
  Case(const OpCase& op, DType type, DeviceInterface& device)
      : program(std::make_shared<OpRegistry>(), precision_of(type), {2, 5}) {
    const Segment segment = ProgramRef(&program_api(), &program).segment("case");
    result = op.build(segment);
    if (result != none) segment.outgoing(result);
    verify(program);
    add_backward(program);
    verify(program);
    runner = std::make_unique<Interpreter>(program, device);
    const RandomStream draw(5, stream_id(op.name));
    std::uint64_t next = 0;
    for (Id id : program.parameters()) {
      std::vector<double> numbers(static_cast<std::size_t>(program.value(id).elements()));
      for (double& x : numbers) x = op.spread * draw.normal(next++);
      runner->set(id, numbers);
    }
    set_inputs({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {1, 4, 1, -1, 9, -1, 6, 5, 3, 10});
    if (result != none) {
      std::vector<double> upstream(static_cast<std::size_t>(program.value(result).elements()));
      for (double& x : upstream) x = draw.normal(next++);
      runner->set(program.segment(segment_id).outgoing_gradient, upstream);
    }
    if (const Id scale = program.find_runtime("inv_targets"); scale != none) runner->set(scale, {0.25});
    if (const Id seed = program.find_runtime("seed"); seed != none) runner->set(seed, {12345});
  }

  void set_inputs(const std::vector<double>& tokens, const std::vector<double>& targets) {
    for (Id id : program.inputs()) {
      const std::string& name = program.value(id).name;
      if (name == "tokens") runner->set(id, tokens);
      if (name == "targets") runner->set(id, targets);
      if (name == "samples") runner->set(id, {7, 8});
    }
  }

  // The scalar whose gradient backward computes.
  double objective() {
    const Id loss = program.find_runtime("loss_sum");
    if (loss != none) runner->set(loss, {0});
    runner->run(segment_id, FunctionKind::forward);
    if (result == none) return 0.25 * runner->numbers(loss)[0];
    const std::vector<double> y = runner->numbers(result),
                              dy = runner->numbers(program.segment(segment_id).outgoing_gradient);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  }

  void differentiate() {
    for (Id id : program.parameters())
      runner->set(program.value(id).gradient,
                  std::vector<double>(static_cast<std::size_t>(program.value(id).elements()), 0.0));
    objective();
    runner->run(segment_id, FunctionKind::backward);
  }

  std::vector<double> gradient(Id parameter) { return runner->numbers(program.value(parameter).gradient); }

  Program program;
  Id result = none;
  std::unique_ptr<Interpreter> runner;
};

class OpTest : public testing::TestWithParam<OpCase> {};

TEST_P(OpTest, GradientsMatchFiniteDifferences) {
  const auto device = cpu_device();
  Case c(GetParam(), DType::f64, *device);
  c.differentiate();
  constexpr double step = 1e-5;
  std::map<Id, std::vector<double>> gradients;  // read now: lm_head adds into them with every forward
  for (Id id : c.program.parameters()) gradients[id] = c.gradient(id);
  for (const auto& [id, analytic] : gradients) {
    const std::vector<double> start = c.runner->numbers(id);
    for (std::size_t i = 0; i < start.size(); ++i) {
      std::vector<double> moved = start;
      moved[i] = start[i] + step;
      c.runner->set(id, moved);
      const double above = c.objective();
      moved[i] = start[i] - step;
      c.runner->set(id, moved);
      const double numeric = (above - c.objective()) / (2 * step);
      ASSERT_NEAR(analytic[i], numeric, 1e-7 * (1 + std::abs(numeric)))
          << c.program.value(id).name << "[" << i << "]";
    }
    c.runner->set(id, start);
  }
}

std::vector<double> torch_numbers(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.entry(name);
  const auto bytes = file.bytes(entry);
  std::vector<double> out;
  if (entry.type == SafetensorsType::f64) {
    out.resize(bytes.size() / 8);
    std::memcpy(out.data(), bytes.data(), bytes.size());
  } else {
    std::vector<std::int32_t> raw(bytes.size() / 4);
    std::memcpy(raw.data(), bytes.data(), bytes.size());
    out.assign(raw.begin(), raw.end());
  }
  return out;
}

void expect_close(const std::vector<double>& ours, const std::vector<double>& theirs, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  double norm = 0, worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    norm = std::max(norm, std::abs(theirs[i]));
    worst = std::max(worst, std::abs(ours[i] - theirs[i]));
  }
  EXPECT_LE(worst, tolerance * (1 + norm)) << what;
}

void compare_with_torch(const OpCase& op, DType type, double tolerance) {
  const auto device = cpu_device();
  const SafetensorsFile file(std::string(PRUN_TEST_FIXTURES) + "/ops.safetensors");
  Case c(op, type, *device);
  const auto torch = [&](const std::string& name) { return torch_numbers(file, op.name + "/" + name); };
  for (Id id : c.program.parameters()) c.runner->set(id, torch(c.program.value(id).name));
  if (op.name == "embedding") c.set_inputs(torch("tokens"), {});
  if (op.name == "lm_head") c.set_inputs({}, torch("targets"));
  if (c.result != none) c.runner->set(c.program.segment(segment_id).outgoing_gradient, torch("dy"));
  c.differentiate();
  if (c.result != none)
    expect_close(c.runner->numbers(c.result), torch("y"), tolerance, "y");
  else
    expect_close(c.runner->numbers(c.program.find_runtime("loss_sum")), torch("y"), tolerance, "loss");
  for (Id id : c.program.parameters())
    expect_close(c.gradient(id), torch("d" + c.program.value(id).name), tolerance, c.program.value(id).name);
}

// The cases PyTorch has made fixtures of; finite differences cover the rest.
class TorchTest : public OpTest {};

std::vector<OpCase> torch_cases() {
  std::vector<OpCase> cases = op_cases();
  std::erase_if(cases, [](const OpCase& op) { return !op.in_torch; });
  return cases;
}

TEST_P(TorchTest, InFp64) { compare_with_torch(GetParam(), DType::f64, 1e-12); }

TEST_P(TorchTest, InFp32) { compare_with_torch(GetParam(), DType::f32, 5e-6); }

TEST_P(TorchTest, InBf16) { compare_with_torch(GetParam(), DType::bf16, 3e-2); }

std::string name_of_case(const testing::TestParamInfo<OpCase>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Ops, OpTest, testing::ValuesIn(op_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Ops, TorchTest, testing::ValuesIn(torch_cases()), name_of_case);

// The cases above cover every op that has a gradient.
TEST(Ops, EveryDifferentiableOpHasACase) {
  std::string names;
  for (const OpCase& op : op_cases()) names += op.name + " ";
  for (const OpDef& def : builtin_ops())
    if (def.gradient && std::string(def.kind) != "cast") {
      EXPECT_NE(names.find(def.kind), std::string::npos) << def.kind << " has a gradient but no case";
    }
}

}  // namespace
}  // namespace prun::test
