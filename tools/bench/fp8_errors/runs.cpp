#include "tools/bench/fp8_errors/runs.hpp"

#include <algorithm>

#include "execute/plan_memory.hpp"
#include "plugin_check/kernel_trial.hpp"
#include "search/laid_out.hpp"

namespace prun::fp8_errors {
namespace {

std::vector<float> numbers_of(const std::vector<std::byte>& bytes, DType type) {
  TrialOperand held;
  held.shape.dtype = type;
  held.bytes = bytes;
  std::vector<float> numbers(bytes.size() / static_cast<std::size_t>(size_of(type)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(held.number(i));
  return numbers;
}

std::vector<std::byte> bytes_of(const float* numbers, std::int64_t count, DType type) {
  TrialOperand held;
  held.shape.dtype = type;
  held.bytes.resize(static_cast<std::size_t>(count * size_of(type)));
  for (std::int64_t i = 0; i < count; ++i)
    held.set(static_cast<std::size_t>(i), static_cast<double>(numbers[i]));
  return held.bytes;
}

AllNumbers held(const Trainer& trainer, Kept kept) {
  AllNumbers all;
  const Assembly& assembly = trainer.assembly();
  const Program& program = assembly.program();
  assembly.each_parameter([&](Id parameter, std::int32_t instance) {
    if (kept == Kept::gradient && program.value(parameter).gradient == none) return;
    NamedNumbers& one = all.emplace_back();
    one.layer = layer_name(assembly, instance);
    one.weight = program.value(parameter).name;
    each_held(program, assembly.rank(), parameter, instance, kept, [&](const HeldRun& run) {
      const std::vector<float> numbers = numbers_of(run.read(trainer.memory()), run.type);
      one.numbers.insert(one.numbers.end(), numbers.begin(), numbers.end());
    });
  });
  return all;
}

// Returns the path of the recipe's section of strategy fp8, or of the one that it would have.
std::string section_of_fp8(const Recipe& recipe, bool& there) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  const auto found = std::find_if(strategies.begin(), strategies.end(),
                                  [](const RecipeSection& section) { return section.plugin() == "fp8"; });
  there = found != strategies.end();
  return "strategy." + std::to_string(found - strategies.begin());
}

// Returns the recipe with the strategy, and what of it changes no bit left out.
Recipe in_fp8(const Recipe& recipe) {
  bool there = false;
  const std::string section = section_of_fp8(recipe, there);
  if (!there) return recipe.with(section + ".plugin", "fp8");
  return recipe.with(section + ".activations", "false")
      .with(section + ".cache_weights", "false")
      .with(section + ".all_gather_inputs", "false")
      .with(section + ".statistics_every", "0");
}

Recipe without_fp8(const Recipe& recipe, PluginHost& plugins) {
  bool there = false;
  const std::string section = section_of_fp8(recipe, there);
  if (!there) return recipe;
  const std::string text = toml_without(recipe, section, [](const recipe::Entry&) { return std::string(); });
  return Recipe::parse(text, "the recipe without fp8", {}, plugins.catalog());
}

}  // namespace

void check_recipe(const Recipe& recipe, PluginHost& plugins) {
  if (mesh_of(recipe).world() != 1)
    throw_error(ErrorCode::bad_input, "the recipe has ", mesh_of(recipe).world(),
                " ranks, and fp8_errors compares what one computes, which is what all of them do");
  const Assembly assembly(compared(recipe, plugins, "", true),
                          plugins);  // refuses it where there is no such product
}

std::string layer_name(const Assembly& assembly, std::int32_t instance) {
  const Instance& of = assembly.plan().instances[instance];
  const SegmentData& segment = assembly.program().segment(of.segment);
  return segment.repeat > 1 ? segment.name + "." + std::to_string(of.layer) : segment.name;
}

Recipe compared(const Recipe& recipe, PluginHost& plugins, const std::string& compute, bool fp8) {
  Recipe made = (fp8 ? in_fp8(recipe) : without_fp8(recipe, plugins))
                    .with("precision.gradient", "fp32")
                    .with("precision.master", "state")
                    .with("run.keep_gradients", "true")
                    .with("run.seed", std::to_string(recipe.integer("run.seed") + 1));
  if (!compute.empty()) made = made.with("precision.compute", compute);
  return made;
}

Trained train(const Recipe& recipe, PluginHost& plugins, std::int64_t steps) {
  const Recipe plain = compared(recipe, plugins, "", false)
                           .with("run.seed", std::to_string(recipe.integer("run.seed")))
                           .with("run.steps", std::to_string(steps));
  const Assembly assembly(plain, plugins);
  Trainer trainer(assembly, plugins);
  Trained trained;
  trainer.run(steps, [&](const StepResult& result) { trained.losses.push_back(result.loss); });
  trained.weights = held(trainer, Kept::parameter);
  return trained;
}

void put_weights(Trainer& trainer, const AllNumbers& weights) {
  const Assembly& assembly = trainer.assembly();
  std::size_t next = 0;
  assembly.each_parameter([&](Id parameter, std::int32_t instance) {
    const NamedNumbers& from = weights.at(next++);
    PRUN_CHECK(from.weight == assembly.program().value(parameter).name, "weights in another order");
    std::size_t done = 0;
    each_held(assembly.program(), assembly.rank(), parameter, instance, Kept::parameter,
              [&](const HeldRun& run) {
                PRUN_CHECK(done + static_cast<std::size_t>(run.count) <= from.numbers.size(), from.weight,
                           " is larger than what was trained");
                trainer.memory().write(run.value, run.instance, run.offset,
                                       bytes_of(from.numbers.data() + done, run.count, run.type));
                done += static_cast<std::size_t>(run.count);
              });
  });
}

Step step_of(const Recipe& recipe, PluginHost& plugins, const AllNumbers& weights, int later) {
  const Assembly assembly(recipe, plugins);
  Trainer trainer(assembly, plugins);
  for (int i = 0; i < later; ++i) trainer.step();
  put_weights(trainer, weights);
  Step step;
  const StepResult result = trainer.step();
  step.loss = result.loss;
  step.gradients = held(trainer, Kept::gradient);
  if (result.loss_scale > 0)
    for (NamedNumbers& one : step.gradients)
      for (float& number : one.numbers) number /= static_cast<float>(result.loss_scale);
  return step;
}

}  // namespace prun::fp8_errors
