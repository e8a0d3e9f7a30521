// AdamW and SGD against torch.optim, three steps each.
#include <gtest/gtest.h>

#include <cmath>

#include "base/safetensors.hpp"
#include "plugin_check/interpreter.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

std::vector<double> torch_numbers(const std::string& name) {
  const SafetensorsFile file(std::string(PRUN_TEST_FIXTURES) + "/ops.safetensors");
  const auto bytes = file.bytes(name);
  std::vector<double> out(bytes.size() / 8);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

void compare(const std::string& plugin, const std::vector<std::string>& sets) {
  std::vector<std::string> all = sets;
  all.insert(all.begin(), "optimizer.plugin=" + plugin);
  const Recipe recipe = tiny_recipe(all);
  const auto optimizer = plugins().create<OptimizerInterface>("optimizer", recipe.section("optimizer"));
  const auto device = cpu_device();
  Program program(std::make_shared<OpRegistry>(), {DType::f64, DType::f64, DType::f64, DType::f64}, {1, 1});
  const Segment segment = ProgramRef(&program_api(), &program).segment("case");
  const Id p = segment.weight("p", {{"rows", 4}, {"cols", 5}}, zeros());
  segment.op("scale", {p}, {{"factor", 1.0}});
  segment.outgoing(segment.op("scale", {p}, {{"factor", 1.0}}));
  add_backward(program);
  add_update(program, one_optimizer(*optimizer));
  Interpreter runner(program, kernels_of(*device));
  runner.set(p, torch_numbers("update/parameter"));
  runner.set(program.runtime("lr"), {0.01});
  runner.set(program.runtime("clip"), {1.0});
  const std::vector<double> gradients = torch_numbers("update/gradients");
  for (int step = 1; step <= 3; ++step) {
    runner.set(program.runtime("step"), {static_cast<double>(step)});
    runner.set(program.value(p).gradient,
               {gradients.begin() + 20 * (step - 1), gradients.begin() + 20 * step});
    const std::vector<double> before = runner.numbers(p);
    runner.set(program.runtime("keep"), {0.0});
    runner.run(1, FunctionKind::update);
    EXPECT_EQ(runner.numbers(p), before) << "a masked update changed something";
    runner.set(program.runtime("keep"), {1.0});
    runner.run(1, FunctionKind::update);
    const std::vector<double> theirs = torch_numbers(plugin + "/after" + std::to_string(step));
    for (std::size_t i = 0; i < theirs.size(); ++i)
      ASSERT_NEAR(runner.numbers(p)[i], theirs[i], 1e-12) << plugin << " step " << step << " element " << i;
  }
}

TEST(Update, AdamWMatchesPyTorch) {
  compare("adamw", {"optimizer.weight_decay=0.1", "optimizer.betas=[0.9,0.95]"});
}
TEST(Update, SgdMatchesPyTorch) { compare("sgd", {"optimizer.momentum=0.9"}); }

}  // namespace
}  // namespace prun::test
