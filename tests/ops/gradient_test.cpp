// Every op: gradients against finite differences in fp64, values and gradients against PyTorch.
#include <gtest/gtest.h>

#include <cmath>

#include "base/safetensors.hpp"
#include "ops/op_cases.hpp"
#include "plugin_check/interpreter.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

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
      : differentiated_(write(op, type, objective_), objective_, kernels_of(device), op.spread) {
    set_inputs({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {1, 4, 1, -1, 9, -1, 6, 5, 3, 10});
    for (const char* scale : {"inv_targets", "inv_sequences"})
      if (const Id id = program().find_runtime(scale); id != none) values().set(id, {0.25});
    if (const Id one = program().find_runtime("one"); one != none) values().set(one, {1});
    if (const Id seed = program().find_runtime("seed"); seed != none) values().set(seed, {12345});
  }

  const Program& program() const { return differentiated_.program(); }
  Interpreter& values() { return differentiated_.values(); }
  Differentiated& differentiated() { return differentiated_; }
  // What PyTorch calls y.
  Id result() const { return objective_.result == none ? objective_.loss : objective_.result; }

  void set_inputs(const std::vector<double>& tokens, const std::vector<double>& targets) {
    for (Id id : program().inputs()) {
      const std::string& name = program().value(id).name;
      if (name == "tokens") values().set(id, tokens);
      if (name == "targets") values().set(id, targets);
      if (name == "samples") values().set(id, {7, 8});
    }
  }

 private:
  static std::unique_ptr<Program> write(const OpCase& op, DType type, Objective& objective) {
    auto program =
        std::make_unique<Program>(std::make_shared<OpRegistry>(), precision_of(type), ModelContext{2, 5});
    const Segment segment = ProgramRef(&program_api(), program.get()).segment("case");
    objective.result = op.build(segment);
    if (objective.result != none) {
      segment.outgoing(objective.result);
    } else {
      objective.loss = program->runtime(op.loss);
      objective.loss_scale = program->runtime(op.loss_scale);
    }
    return program;
  }

  Objective objective_;
  Differentiated differentiated_;
};

class OpTest : public testing::TestWithParam<OpCase> {};

TEST_P(OpTest, GradientsMatchFiniteDifferences) {
  const auto device = cpu_device();
  Case c(GetParam(), DType::f64, *device);
  constexpr std::size_t all = 1 << 20;
  const auto miss = c.differentiated().compare(1e-7, all);
  if (miss)
    ADD_FAILURE() << c.program().value(miss->parameter).name << "[" << miss->element << "] is "
                  << miss->gradient << ", differences say " << miss->difference;
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
  const SafetensorsFile file(std::string(PRUN_TEST_FIXTURES) + "/" + op.fixtures + ".safetensors");
  Case c(op, type, *device);
  const auto torch = [&](const std::string& name) { return torch_numbers(file, op.name + "/" + name); };
  for (Id id : c.program().parameters()) c.values().set(id, torch(c.program().value(id).name));
  if (op.name == "embedding") c.set_inputs(torch("tokens"), {});
  if (op.name == "lm_head") c.set_inputs({}, torch("targets"));
  if (c.differentiated().arriving() != none) c.values().set(c.differentiated().arriving(), torch("dy"));
  c.differentiated().differentiate();
  expect_close(c.values().numbers(c.result()), torch("y"), tolerance, "y");
  for (Id id : c.program().parameters())
    expect_close(c.differentiated().gradient(id), torch("d" + c.program().value(id).name), tolerance,
                 c.program().value(id).name);
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
