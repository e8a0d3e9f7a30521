// Rules of whole tensors against others' and against ones written here, over 20 steps.
#include <gtest/gtest.h>

#include <cmath>

#include "base/safetensors.hpp"
#include "plugin_check/interpreter.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

using Numbers = std::vector<double>;
using Sets = std::vector<std::string>;

constexpr int steps = 20;
constexpr double rate = 0.02, weight_decay = 0.1;

Numbers fixture(const std::string& name) {
  const SafetensorsFile file(std::string(PRUN_TEST_FIXTURES) + "/updates.safetensors");
  const auto bytes = file.bytes(name);
  Numbers out(bytes.size() / 8);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// One parameter, updated by a plugin.
class Trial {
 public:
  Trial(const std::string& plugin, Sets sets, DType type, const std::vector<Dim>& dims,
        const Matrices& made) {
    sets.insert(sets.begin(), "optimizer.plugin=" + plugin);
    const Recipe recipe = tiny_recipe(sets);
    optimizer_ = plugins().create<OptimizerInterface>("optimizer", recipe.section("optimizer"));
    program_ = std::make_unique<Program>(std::make_shared<OpRegistry>(), Precision{type, type, type, type},
                                         ModelContext{1, 1});
    const Segment segment = ProgramRef(&program_api(), program_.get()).segment("case");
    const ParameterSpec spec{"p", {dims.data(), dims.size()}, zeros(), true};
    parameter_ = program_->add_parameter(segment.id(), spec);
    if (made.columns > 0) program_->set_matrices(parameter_, made);
    segment.outgoing(segment.op("scale", {parameter_}, {{"factor", 1.0}}));
    add_backward(*program_);
    add_update(*program_,
               one_optimizer(*optimizer_, made.columns > 0 ? UpdateUnit::matrix : UpdateUnit::tensor));
    runner_.emplace(*program_, kernels_of(*device_));
    runner_->set(program_->runtime("lr"), {rate});
    runner_->set(program_->runtime("clip"), {1.0});
  }

  Numbers after(const Numbers& start, const Numbers& gradients) {
    runner_->set(parameter_, start);
    const auto n = static_cast<std::ptrdiff_t>(start.size());
    for (int step = 1; step <= steps; ++step) {
      runner_->set(program_->runtime("step"), {static_cast<double>(step)});
      runner_->set(program_->value(parameter_).gradient,
                   {gradients.begin() + n * (step - 1), gradients.begin() + n * step});
      const Numbers before = runner_->numbers(parameter_);
      runner_->set(program_->runtime("keep"), {0.0});
      runner_->run(1, FunctionKind::update);
      EXPECT_EQ(runner_->numbers(parameter_), before) << "a masked update changed something";
      runner_->set(program_->runtime("keep"), {1.0});
      runner_->run(1, FunctionKind::update);
    }
    return runner_->numbers(parameter_);
  }

 private:
  std::shared_ptr<DeviceInterface> device_ = cpu_device();
  std::shared_ptr<OptimizerInterface> optimizer_;
  std::unique_ptr<Program> program_;
  std::optional<Interpreter> runner_;
  Id parameter_ = none;
};

void expect_near(const Numbers& ours, const Numbers& theirs, double apart, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i], theirs[i], apart) << what << ", element " << i;
}

TEST(WholeUpdate, AdafactorMatchesPyTorch) {
  const std::vector<std::pair<std::string, std::vector<Dim>>> shapes = {
      {"6x10", {{"rows", 6}, {"cols", 10}}}, {"10x6", {{"rows", 10}, {"cols", 6}}}, {"7", {{"cols", 7}}}};
  for (const auto& [name, dims] : shapes) {
    Trial trial("adafactor", {"optimizer.weight_decay=0.1"}, DType::f64, dims, {});
    expect_near(trial.after(fixture(name + "/parameter"), fixture(name + "/gradients")),
                fixture(name + "/adafactor"), 1e-10, name);
  }
}

// What bf16 rounds of the iteration is less than a twentieth of a step along each direction.
TEST(WholeUpdate, MuonIsNearPyTorchs) {
  for (const std::string name : {"6x10", "10x6"}) {
    const bool wide = name == "6x10";
    Trial trial("muon", {"optimizer.weight_decay=0.1"}, DType::f32,
                {{"rows", wide ? 6 : 10}, {"cols", wide ? 10 : 6}}, {.columns = 1});
    const Numbers ours = trial.after(fixture(name + "/parameter"), fixture(name + "/gradients")),
                  theirs = fixture(name + "/muon"), start = fixture(name + "/parameter");
    double apart = 0, moved = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      apart += std::pow(ours[i] - theirs[i], 2);
      moved += std::pow(start[i] - theirs[i], 2);
    }
    EXPECT_LT(std::sqrt(apart / moved), 0.02) << name;
  }
}

// ---------------------------------------------------------------- rules written here

struct Plain {
  int rows, columns;
  std::vector<float> x;

  float& at(int i, int j) { return x[static_cast<std::size_t>(i * columns + j)]; }
  float at(int i, int j) const { return x[static_cast<std::size_t>(i * columns + j)]; }
};

Plain product(const Plain& a, const Plain& b) {
  Plain c{a.rows, b.columns, std::vector<float>(static_cast<std::size_t>(a.rows * b.columns))};
  for (int i = 0; i < c.rows; ++i)
    for (int j = 0; j < c.columns; ++j)
      for (int k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

Plain transposed(const Plain& a) {
  Plain t{a.columns, a.rows, std::vector<float>(a.x.size())};
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}

Plain orthogonal(Plain x) {
  float squares = 0;
  for (const float value : x.x) squares += value * value;
  for (float& value : x.x) value /= std::sqrt(squares);
  for (int step = 0; step < 5; ++step) {
    const Plain gram = product(x, transposed(x)), twice = product(gram, gram);
    const Plain one = product(gram, x), two = product(twice, x);
    for (std::size_t i = 0; i < x.x.size(); ++i)
      x.x[i] = 3.4445f * x.x[i] - 4.775f * one.x[i] + 2.0315f * two.x[i];
  }
  return x;
}

// Of one matrix of a parameter: elements [first, first + rows * columns).
void muon_by_hand(Numbers& weights, const Numbers& gradients, std::size_t first, int rows, int columns) {
  const std::size_t n = static_cast<std::size_t>(rows * columns), all = weights.size();
  std::vector<float> momentum(n), w(n);
  for (std::size_t i = 0; i < n; ++i) w[i] = static_cast<float>(weights[first + i]);
  for (std::size_t step = 0; step < steps; ++step) {
    Plain direction{rows, columns, std::vector<float>(n)};
    for (std::size_t i = 0; i < n; ++i) {
      const auto g = static_cast<float>(gradients[step * all + first + i]);
      momentum[i] = 0.95f * momentum[i] + 0.05f * g;
      direction.x[i] = 0.95f * momentum[i] + 0.05f * g;
    }
    const Plain along = orthogonal(direction);
    const float size = 0.2f * std::sqrt(static_cast<float>(std::max(rows, columns)));
    for (std::size_t i = 0; i < n; ++i)
      w[i] =
          w[i] * static_cast<float>(1 - rate * weight_decay) - static_cast<float>(rate) * size * along.x[i];
  }
  for (std::size_t i = 0; i < n; ++i) weights[first + i] = static_cast<double>(w[i]);
}

TEST(WholeUpdate, MuonIsTheRuleWrittenByHand) {
  for (const std::string name : {"6x10", "10x6"}) {
    const bool wide = name == "6x10";
    const int rows = wide ? 6 : 10, columns = wide ? 10 : 6;
    Trial trial("muon", {"optimizer.iteration=fp32"}, DType::f32, {{"rows", rows}, {"cols", columns}},
                {.columns = 1});
    Numbers weights = fixture(name + "/parameter");
    muon_by_hand(weights, fixture(name + "/gradients"), 0, rows, columns);
    expect_near(trial.after(fixture(name + "/parameter"), fixture(name + "/gradients")), weights, 1e-5, name);
  }
}

// Two groups of a matrix of two rows, and two of one, as queries, keys and values are packed.
TEST(WholeUpdate, PackedMatricesAreUpdatedOneByOne) {
  const std::vector<Dim> dims = {{"heads", 2}, {"packed", 3}, {"hidden", 10}};
  Trial trial("muon", {"optimizer.iteration=fp32"}, DType::f32, dims,
              {.batch = 1, .columns = 1, .cuts = {1, 2}});
  Numbers weights = fixture("6x10/parameter");
  for (std::size_t matrix = 0; matrix < 6; ++matrix)
    muon_by_hand(weights, fixture("6x10/gradients"), 10 * matrix, 1, 10);
  expect_near(trial.after(fixture("6x10/parameter"), fixture("6x10/gradients")), weights, 1e-5, "packed");
  Trial two("muon", {"optimizer.iteration=fp32"}, DType::f32, dims, {.batch = 1, .columns = 1, .cuts = {2}});
  weights = fixture("6x10/parameter");
  for (const std::size_t group : {0u, 1u}) {
    muon_by_hand(weights, fixture("6x10/gradients"), 30 * group, 2, 10);
    muon_by_hand(weights, fixture("6x10/gradients"), 30 * group + 20, 1, 10);
  }
  expect_near(two.after(fixture("6x10/parameter"), fixture("6x10/gradients")), weights, 1e-5, "cut once");
}

TEST(WholeUpdate, LionIsTheRuleWrittenByHand) {
  Trial trial("lion", {"optimizer.betas=[0.9,0.99]"}, DType::f64, {{"rows", 6}, {"cols", 10}}, {});
  const Numbers start = fixture("6x10/parameter"), gradients = fixture("6x10/gradients");
  Numbers weights = start, momentum(start.size());
  for (std::size_t step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < start.size(); ++i) {
      const double g = gradients[step * start.size() + i], mixed = 0.9 * momentum[i] + 0.1 * g;
      weights[i] -= rate * (weight_decay * weights[i] + (mixed > 0 ? 1 : mixed < 0 ? -1 : 0));
      momentum[i] = 0.99 * momentum[i] + 0.01 * g;
    }
  expect_near(trial.after(start, gradients), weights, 1e-12, "lion");
}

}  // namespace
}  // namespace prun::test
