#include "inspect/one_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugin/traits.hpp"
#include "search/recipe_text.hpp"
#include "train/assemble/loss_scale.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun {
namespace {

// Refuses a reference that says nothing: numbers that are not finite differ from any others.
void check_finite(const Recipe& recipe, const std::vector<StepResult>& steps) {
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (!std::isfinite(steps[s].loss) || !std::isfinite(steps[s].grad_norm))
      throw_error(ErrorCode::bad_input, "cannot compare with one rank: loss or gradients of its step ", s + 1,
                  " are not finite; ",
                  scales_loss(recipe)
                      ? "let the loss be multiplied by less (--set loss_scale.initial=1024), or "
                        "make the recipe train on one rank first"
                      : "make the recipe train on one rank first");
}

// Takes down what a rank holds.
void take_down(Trainer& trainer, bool gradients, Tensors& all) {
  each_compared_run(trainer, gradients,
                    [&](const std::string& name, const std::byte* data, DType type, std::int64_t whole,
                        std::int64_t count) {
                      std::vector<double>& numbers = all[name];
                      const auto end = static_cast<std::size_t>(whole + count);
                      if (numbers.size() < end) numbers.resize(end);
                      for (std::int64_t i = 0; i < count; ++i)
                        numbers[static_cast<std::size_t>(whole + i)] = element_as_double(data, type, i);
                    });
}

// Trains one of the reference's ranks, and adds what it holds.
void train_rank(Trainer& trainer, std::int64_t steps, WholeNumberProbe* probe,
                const std::function<void(Trainer&)>& disturb, std::mutex& mutex, Reference& reference) {
  if (probe) probe->watch(trainer.memory());
  if (disturb) disturb(trainer);
  std::vector<StepResult> results = {trainer.step()};
  {
    const std::scoped_lock lock(mutex);
    if (probe) reference.numbers = probe->take();
    take_down(trainer, true, reference.gradients);
  }
  trainer.run(steps - 1, [&](const StepResult& result) { results.push_back(result); });
  const std::scoped_lock lock(mutex);
  take_down(trainer, false, reference.parameters);
  if (trainer.assembly().rank() == 0) reference.steps = std::move(results);
}

// Moves each parameter some roundings of fp64 up or down, by a rule that differs by `seed`.
void disturb_parameters(Trainer& trainer, std::uint64_t seed) {
  const Assembly& assembly = trainer.assembly();
  std::uint64_t bits = seed;
  assembly.each_parameter([&](Id parameter, std::int32_t instance) {
    each_held(assembly.program(), assembly.rank(), parameter, instance, Kept::parameter,
              [&](const HeldRun& run) {
                std::vector<std::byte> bytes = run.read(trainer.memory());
                const std::span<double> numbers(reinterpret_cast<double*>(bytes.data()),
                                                static_cast<std::size_t>(run.count));
                for (double& number : numbers) {
                  bits = bits * 6364136223846793005u + 1442695040888963407u;
                  number *= 1 + std::ldexp((bits >> 63) != 0 ? 1.0 : -1.0, -51);
                }
                trainer.memory().write(run.value, run.instance, run.offset, bytes);
              });
  });
}

void take_largest(double& largest, double difference) { largest = std::max(largest, worse(difference)); }

void take_growth(const Tensors& reference, const Tensors& disturbed, std::map<std::string, double>& growth) {
  for (const auto& [name, right] : reference)
    for (std::size_t i = 0; i < right.size(); ++i)
      take_largest(growth[name], std::abs(disturbed.at(name).at(i) - right[i]));
}

}  // namespace

double element_as_double(const std::byte* data, DType type, std::int64_t i) {
  if (type == DType::f64) return reinterpret_cast<const double*>(data)[i];
  if (type == DType::f32) return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
  if (type == DType::f16)
    return static_cast<double>(static_cast<float>(reinterpret_cast<const f16*>(data)[i]));
  return static_cast<double>(static_cast<float>(reinterpret_cast<const bf16*>(data)[i]));
}

Recipe in_device_memory(const Recipe& recipe, PluginHost& plugins) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  for (std::size_t i = strategies.size(); i-- > 0;) {
    const PluginNote& note = plugins.note("strategy", strategies[i].plugin());
    const bool moves_alone =
        trait_of(note, "phase") == name_of(Phase::memory) && trait_of(note, "tune") == "exact";
    if (!moves_alone || trait_of(note, "only") == "training") continue;
    const std::string text =
        toml_without(recipe, strategies[i].path(), [](const recipe::Entry&) { return std::string(); });
    return in_device_memory(Recipe::parse(text, "the recipe of one rank", {}, plugins.catalog()), plugins);
  }
  return recipe;
}

std::string name_where_varying(const Assembly& assembly, std::string name, Id value) {
  const Mesh& mesh = assembly.mesh();
  for (AxisId axis = 0; axis < mesh.size(); ++axis)
    if (mesh.extent(axis) > 1 && assembly.program().value(value).on(axis).is_varying())
      name += detail::concat(" of ", mesh.name(axis), " ", mesh.coordinate(assembly.rank(), axis));
  return name;
}

std::optional<std::string> compared_name(const Assembly& assembly, Id state, std::int32_t instance) {
  const Value& value = assembly.program().value(state);
  if (!value.compared) return {};
  const Mesh& mesh = assembly.mesh();
  for (AxisId axis = 0; axis < mesh.size(); ++axis)
    if (mesh.extent(axis) > 1 && value.on(axis).is_partial()) return {};
  return name_where_varying(assembly, assembly.full_name(state, instance), state);
}

Reference train_reference(const Recipe& recipe, PluginHost& plugins, std::int64_t steps,
                          const std::vector<std::string>& exact,
                          const std::function<void(Trainer&)>& disturb) {
  Reference reference;
  std::mutex mutex;
  NumberProbes probes(exact);
  const auto train = [&](Trainer& trainer) {
    train_rank(trainer, steps, probes.of(trainer), disturb, mutex, reference);
  };
  if (mesh_of(recipe).world() > 1) {
    run_local_ranks(recipe, plugins.places(), train);
  } else {
    const Assembly assembly(recipe, plugins);
    Membership alone;
    alone.probes = probes.probes();
    Trainer trainer(assembly, plugins, std::move(alone));
    train(trainer);
  }
  if (!disturb) check_finite(recipe, reference.steps);
  return reference;
}

Growth growth_of(const Recipe& recipe, PluginHost& plugins, const Reference& reference) {
  const std::size_t steps = reference.steps.size();
  Growth growth{std::vector<double>(steps), std::vector<double>(steps), {}, {}};
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Reference disturbed = train_reference(recipe, plugins, static_cast<std::int64_t>(steps), {},
                                                [&](Trainer& trainer) { disturb_parameters(trainer, seed); });
    for (std::size_t s = 0; s < steps; ++s) {
      take_largest(growth.losses[s], relative(disturbed.steps[s].loss, reference.steps[s].loss));
      take_largest(growth.norms[s], relative(disturbed.steps[s].grad_norm, reference.steps[s].grad_norm));
    }
    take_growth(reference.gradients, disturbed.gradients, growth.gradients);
    take_growth(reference.parameters, disturbed.parameters, growth.parameters);
  }
  return growth;
}

}  // namespace prun
