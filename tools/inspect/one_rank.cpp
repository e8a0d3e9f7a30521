#include "inspect/one_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "search/laid_out.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- whole numbers

bool is_whole(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u8 || type == DType::u16;
}

std::int64_t number(const std::byte* bytes, DType type, std::int64_t i) {
  if (type == DType::i32) return reinterpret_cast<const std::int32_t*>(bytes)[i];
  if (type == DType::i64) return reinterpret_cast<const std::int64_t*>(bytes)[i];
  if (type == DType::u16) return reinterpret_cast<const std::uint16_t*>(bytes)[i];
  return std::to_integer<std::int64_t>(bytes[i]);
}

std::string called(const Program& program, Id id) {
  const Value& value = program.value(id);
  return value.role == Role::runtime ? value.name : program.segment(value.segment).name + "." + value.name;
}

bool can_be_named(const Value& value) {
  return is_whole(value.dtype) && (value.role == Role::activation || value.role == Role::runtime);
}

bool is_incomplete(const Value& value) {
  return std::any_of(value.placement.begin(), value.placement.end(),
                     [](const AxisPlacement& lies) { return lies.is_incomplete(); });
}

// Values of one name are told apart by their place among them in forward, which layouts do not change.
std::map<Id, int> numbered(const Program& program) {
  std::map<Id, int> numbers;
  std::map<std::string, int> next;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id op : program.segment(segment).ops(FunctionKind::forward))
      for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
        if (const Id id = program.op(op).operands[i];
            id != none && program.op(op).access(i) == Access::write && can_be_named(program.value(id)) &&
            program.value(id).role == Role::activation)
          numbers[id] = next[called(program, id)]++;
  return numbers;
}

std::vector<std::string> names_of(const Program& program, const std::map<Id, int>& numbers) {
  std::set<std::string> names;
  for (const auto& [id, place] : numbers) names.insert(called(program, id));
  for (const Id id : program.runtimes())
    if (can_be_named(program.value(id))) names.insert(called(program, id));
  return {names.begin(), names.end()};
}

// Returns the place, in the value of one rank, of element `at` of a value whose sequence has another order.
std::int64_t in_order(const Program& program, const Value& value, std::int64_t at) {
  const SequenceOrder order = program.requests().sequence_order;
  if (!order.permutes()) return at;
  const Name seq = program.value(program.inputs().front()).dims[1].name;  // that of the tokens
  std::int64_t inner = 1;
  for (std::size_t d = value.dims.size(); d-- > 0; inner *= value.dims[d].extent) {
    if (value.dims[d].name != seq) continue;
    const std::int64_t place = at / inner % value.dims[d].extent;
    return at + (order.position(place) - place) * inner;
  }
  return at;
}

}  // namespace

WholeNumberProbe::WholeNumberProbe(const Assembly& assembly, std::vector<std::string> patterns)
    : assembly_(assembly), patterns_(std::move(patterns)), number_of_(numbered(assembly.unlowered())) {
  if (patterns_.empty()) return;
  if (assembly.device_info().asynchronous)
    throw_error(ErrorCode::bad_input, "cannot compare exact numbers on device '",
                assembly.device_info().name.view(),
                "': it runs work later, and they are taken as kernels end; use one that blocks "
                "(device.plugin), whose layouts are the same");
  const std::vector<std::string> names = names_of(assembly.unlowered(), number_of_);
  for (const std::string& pattern : patterns_)
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return glob_match(pattern, name); }))
      throw_error(ErrorCode::bad_input, "no value of whole numbers is called '", pattern, "'",
                  did_you_mean(pattern, names), "; there ",
                  names.empty() ? "are none" : "are: ", join(names, ", "));
}

bool WholeNumberProbe::is_named(Id id) const {
  const std::string name = called(assembly_.program(), id);
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::string& pattern) { return glob_match(pattern, name); });
}

void WholeNumberProbe::begin_call(std::int32_t, const Call&, std::int64_t step, double) noexcept {
  if (step > 0) done_ = true;
}

void WholeNumberProbe::end_kernel(std::int32_t, const Call& call, std::size_t index, double) noexcept {
  const Plan& plan = assembly_.plan();
  if (!memory_ || done_ || plan.functions[call.function].kind != FunctionKind::forward) return;
  try {
    note(call, plan.steps(call)[index]);
  } catch (const std::exception& error) {
    failed_ = error.what();
  }
}

void WholeNumberProbe::note(const Call& call, const PlannedStep& step) {
  if (step.op == none) return;
  const Program& program = assembly_.program();
  const Op& op = program.op(step.op);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id id = op.operands[i];
    if (id == none || op.access(i) != Access::write || number_of_.count(id) == 0) continue;
    if (is_incomplete(program.value(id)) || !is_named(id)) continue;
    const std::int64_t layer = assembly_.plan().instances[call.instance].layer;
    const Value& value = program.value(id);
    const std::string of_layer =
        program.segment(value.segment).repeat > 1 ? detail::concat(".", layer) : std::string();
    const int place = number_of_.at(id);
    keep(detail::concat(program.segment(value.segment).name, of_layer, ".", value.name,
                        place > 0 ? detail::concat(" (", place + 1, ")") : "", ", microbatch ",
                        call.microbatch),
         id, call, step.operands[i].address);
  }
}

void WholeNumberProbe::keep(const std::string& name, Id id, const Call& call, const Address& address) {
  const Program& program = assembly_.program();
  const std::byte* const bytes = memory_->at(assembly_.plan().resolve(call, address, 0));
  const Value& value = program.value(id);
  WholeNumbers own;
  for (const Stretch& run : stretches(slice_of(program, id, assembly_.rank())))
    for (std::int64_t i = 0; i < run.count; ++i) {
      own.at.push_back(in_order(program, value, run.whole + i));
      own.numbers.push_back(number(bytes, value.dtype, run.part + i));
    }
  written_[name] = std::move(own);
}

WrittenNumbers WholeNumberProbe::take() {
  if (!failed_.empty()) throw_error(ErrorCode::internal, failed_);
  for (const Id id : assembly_.program().runtimes())
    if (can_be_named(assembly_.program().value(id)) && is_named(id))
      keep(assembly_.program().value(id).name, id, Call(), assembly_.plan().allocation(id));
  return std::move(written_);
}

UnequalNumbers unequal(const WrittenNumbers& whole, const WrittenNumbers& own) {
  UnequalNumbers found;
  const auto differ = [&](const std::string& where) {
    if (found.count++ == 0) found.where = where;
  };
  for (const auto& [name, mine] : own) {
    const auto right = whole.find(name);
    if (right == whole.end()) {
      differ(name + ", which one rank does not write");
      continue;
    }
    for (std::size_t i = 0; i < mine.numbers.size(); ++i) {
      const auto at = static_cast<std::size_t>(mine.at[i]);
      if (at >= right->second.numbers.size() || right->second.numbers[at] != mine.numbers[i])
        differ(detail::concat(name, ", element ", at));
    }
  }
  return found;
}

namespace {

// ------------------------------------------------------------------- one rank

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
