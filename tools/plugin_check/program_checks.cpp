#include "plugin_check/program_checks.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/text.hpp"
#include "cli/open_recipe.hpp"
#include "inspect/verify.hpp"
#include "ops/registry.hpp"
#include "plugin/discovery.hpp"
#include "plugin/traits.hpp"
#include "plugin_check/conformance.hpp"
#include "plugin_check/interpreter.hpp"
#include "plugin_check/tiny_recipe.hpp"
#include "prun/op_plugin.hpp"
#include "prun/optimizer.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- ops beside
// Finds the ops that a plugin on trial may be written in: prun's, those of the op plugins in its folder, and
// those of all others that are found.

class OpsBeside {
 public:
  // Of several plugins that define an op the first counts, those in the folder before others; one that cannot
  // be used is passed over there.
  OpsBeside(const std::filesystem::path& folder, const std::vector<SearchPlace>& others);

  // Returns plugins by their names in [plugins] ops.
  const std::vector<std::string>& names() const { return names_; }
  const std::shared_ptr<OpRegistry>& registry() const { return registry_; }
  // Returns their kernels for the device `cpu`, before others. It must not outlive this.
  KernelsOf with_kernels(const KernelsOf& others) const;

 private:
  bool take(PluginHost& host, const std::string& name);

  std::vector<std::string> names_;
  std::shared_ptr<OpRegistry> registry_;
  std::vector<std::shared_ptr<OpPluginInterface>> plugins_;
};

OpsBeside::OpsBeside(const std::filesystem::path& folder, const std::vector<SearchPlace>& others)
    : registry_(std::make_shared<OpRegistry>()) {
  const std::vector<SearchPlace> beside = {{folder, "the plugin's folder"}};
  PluginHost host(beside), elsewhere(others);
  for (const std::string& name : plugin_names(beside, "op")) take(host, name);
  for (const std::string& name : plugin_names(others, "op")) try {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) take(elsewhere, name);
    } catch (const Error&) {  // the user has not named it
    }
}

// Leaves out a plugin that needs an option, or has an op that is known already.
bool OpsBeside::take(PluginHost& host, const std::string& name) {
  const DefaultOptions options = default_options(trial_schema(host.note("op", name), ""));
  if (!options.required.empty()) return false;
  const auto plugin = host.create<OpPluginInterface>("op", name, options.api);
  Array<OpDef> ops;
  raise(plugin->ops(&ops));
  for (const OpDef& op : ops)
    if (registry_->contains(op.kind)) return false;
  Array<DeviceKernel> kernels;
  raise(plugin->kernels(&kernels));
  for (const DeviceKernel& kernel : kernels) check_kernel(kernel, name);
  for (const OpDef& op : ops) registry_->add(op, name);
  plugins_.push_back(plugin);
  names_.push_back(name);
  return true;
}

KernelsOf OpsBeside::with_kernels(const KernelsOf& others) const {
  return [this, others](std::string_view op) -> const KernelDef* {
    for (const auto& plugin : plugins_) {
      Array<DeviceKernel> kernels;
      raise(plugin->kernels(&kernels));
      for (const DeviceKernel& own : kernels)
        if (std::string_view(own.device) == "cpu" && op == own.kernel.op) return &own.kernel;
    }
    return others(op);
  };
}

// ------------------------------------------------------------------- model check

constexpr ModelContext context{2, 6};
constexpr std::int64_t most_elements = 1 << 20;  // is how many can be tried in a moment

std::unique_ptr<Program> write(void* model, const OpsBeside& ops) {
  const Precision in_fp64{DType::f64, DType::f64, DType::f64, DType::f64};
  auto program = std::make_unique<Program>(ops.registry(), in_fp64, context);
  raise(static_cast<ModelInterface*>(model)->build(context, &program_api(), program.get()));
  if (program->segment_count() < 2) throw_error(ErrorCode::bad_input, "build() writes no segment");
  verify(*program);
  return program;
}

std::string full_name(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  return program.segment(value.segment).name + "." + value.name;
}

// Returns sizes that are tried quickly, where the model accepts them together.
Schema small_schema(const TriedPlugin& plugin, const OpsBeside& ops, const std::string& given) {
  const Schema tiny = tiny_schema(plugin.note, given);
  const DefaultOptions options = default_options(tiny);
  try {
    write(plugin.create(options.api).get(), ops);
    return tiny;
  } catch (const Error&) {
    return trial_schema(plugin.note, given);
  }
}

// Returns how many numbers tokens and targets may have: rows of every table that they pick from.
std::int64_t rows_of_tables(const Program& program) {
  std::int64_t rows = std::numeric_limits<std::int32_t>::max();
  for (Id segment = 1; segment < program.segment_count(); ++segment)
    for (Id id : program.segment(segment).ops(FunctionKind::forward)) {
      const Op& op = program.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.def->operands[i].rows_by >= 0 && op.operands[i] != none)
          rows = std::min(rows, program.value(op.operands[i]).dims.front().extent);
    }
  return rows;
}

void set_inputs(Differentiated& model) {
  const Program& program = model.program();
  const std::int64_t rows = rows_of_tables(program);
  const RandomStream draw(5, stream_id("inputs"));
  std::uint64_t next = 0;
  double targets = 0;
  for (Id id : program.inputs()) {
    const Value& value = program.value(id);
    std::vector<double> numbers(static_cast<std::size_t>(value.elements()));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = value.name == "samples"
                       ? static_cast<double>(7 + i)
                       : static_cast<double>(draw.bits32(next++) % static_cast<std::uint64_t>(rows));
    if (value.name == "targets") {
      numbers.front() = -1;  // is one that does not count
      targets = static_cast<double>(numbers.size() - 1);
    }
    model.values().set(id, numbers);
  }
  if (const Id scale = program.find_runtime("inv_targets"); scale != none)
    model.values().set(scale, {1 / std::max(targets, 1.0)});
  if (const Id seed = program.find_runtime("seed"); seed != none) model.values().set(seed, {12345});
}

Objective loss_of(const Program& program) {
  Objective objective;
  objective.loss = program.find_runtime("loss_sum");
  objective.loss_scale = program.find_runtime("inv_targets");
  if (objective.loss == none || objective.loss_scale == none)
    throw_error(ErrorCode::bad_input,
                "no head adds to the loss: give one the runtime values 'loss_sum' and 'inv_targets'");
  return objective;
}

// An end of a range is kept as a double, which cannot hold the largest whole number.
std::int64_t whole_number(double end) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (end >= 0x1p63) return Limits::max();
  return end < -0x1p63 ? Limits::min() : static_cast<std::int64_t>(end);
}

// Returns an option's least and greatest values.
std::vector<recipe::Value> extremes(const recipe::Option& option) {
  using recipe::OptionType;
  std::vector<recipe::Value> values;
  if (option.type == OptionType::boolean) values = {false, true};
  for (const std::string& choice : option.choices)
    if (option.type == OptionType::choice) values.emplace_back(choice);
  for (const std::optional<double>& end : {option.low, option.high}) {
    if (end && option.type == OptionType::integer) values.emplace_back(whole_number(*end));
    if (end && option.type == OptionType::real) values.emplace_back(*end);
  }
  return values;
}

// A model that does not support a trial is not wrong for that.
template <class Body>
CheckFinding unless_unsupported(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return {detail::concat("not checked: ", error.what()), false};
  }
}

CheckFinding program_finding(const TriedPlugin& plugin) {
  const OpsBeside ops(plugin.path.parent_path(), {});
  const std::shared_ptr<void> another = plugin.create(plugin.options);
  plugin.doing("build()");
  const std::unique_ptr<Program> program = write(plugin.object, ops);
  const std::string text = to_text(*program);
  for (void* const object : {plugin.object, another.get()})
    if (to_text(*write(object, ops)) != text)
      throw_error(ErrorCode::bad_input, "build() writes another program ",
                  object == plugin.object ? "when it is called again" : "for a second object",
                  "; it must be the same for the same options, since every rank writes it");
  check_alike_elsewhere("build()", [&] { return to_text(*write(plugin.create(plugin.options).get(), ops)); });
  loss_of(*program);
  add_backward(*program);
  std::int64_t elements = 0;
  for (Id id : program->parameters()) {
    elements += program->value(id).elements();
    if (program->value(id).gradient == none && !program->value(id).frozen)
      throw_error(ErrorCode::bad_input, "parameter '", full_name(*program, id),
                  "' does not reach the loss: nothing that a head reads comes of it");
  }
  return {detail::concat(program->parameters().size(), " parameters of ", elements, " elements in ",
                         program->segment_count() - 1, " segments")};
}

CheckFinding gradient_finding(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                              const std::string& given) {
  constexpr double tolerance = 1e-6, spread = 0.5;
  constexpr std::size_t elements_each = 6;
  const OpsBeside ops(plugin.path.parent_path(), {});
  const CpuKernels cpu(places);
  const DefaultOptions options = default_options(small_schema(plugin, ops, given));
  std::unique_ptr<Program> program = write(plugin.create(options.api).get(), ops);
  std::int64_t elements = 0;
  for (Id id : program->parameters()) elements += program->value(id).elements();
  if (elements > most_elements)
    return {detail::concat("not checked: a segment of each kind has ", elements,
                           " elements; give options that make it small by --options"),
            false};
  const Objective objective = loss_of(*program);
  plugin.doing("the gradients of the model");
  Differentiated model(std::move(program), objective, ops.with_kernels(cpu.kernels()), spread);
  set_inputs(model);
  if (const auto miss = model.compare(tolerance, elements_each))
    throw_error(ErrorCode::bad_input, "the gradient of '", full_name(model.program(), miss->parameter),
                "' is ", miss->gradient, " in element ", miss->element, ", and differences of the loss say ",
                miss->difference, "; prun plugins check finds which op is wrong, where it is a plugin's");
  return {detail::concat(model.program().parameters().size(), " parameters, a segment of each kind")};
}

// Says whether the author's own check refuses, and not an unforeseen error.
bool is_refusal(const Error& error) { return error.code() != ErrorCode::internal; }

}  // namespace

CheckFinding check_model_program(const TriedPlugin& plugin) {
  return unless_unsupported([&] { return program_finding(plugin); });
}

CheckFinding check_model_gradients(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                                   const std::string& given) {
  return unless_unsupported([&] { return gradient_finding(plugin, places, given); });
}

CheckFinding check_model_options(const TriedPlugin& plugin, const std::string& given) {
  const OpsBeside ops(plugin.path.parent_path(), {});
  const Schema schema = small_schema(plugin, ops, given);
  std::int64_t built = 0, refused = 0;
  for (const recipe::Option& option : schema.options())
    for (const recipe::Value& value : extremes(option)) {
      const std::string what = option.key + " = " + recipe::to_toml(value);
      plugin.doing(what);
      const DefaultOptions options = default_options(with_default(schema, option.key, value));
      try {
        write(plugin.create(options.api).get(), ops);
        ++built;
      } catch (const Error& error) {
        if (!is_refusal(error)) throw_error(ErrorCode::bad_input, what, ": ", error.what());
        ++refused;
      }
    }
  return {detail::concat(built, " values built, ", refused, " refused")};
}

namespace {

// ------------------------------------------------------------------- optimizer check

using Numbers = std::vector<double>;

constexpr Id segment_id = 1;

Numbers drawn(const std::string& what, std::int64_t begin, std::int64_t rows, std::int64_t columns) {
  const RandomStream draw(5, stream_id(what));
  Numbers numbers;
  for (std::int64_t i = begin * columns; i < (begin + rows) * columns; ++i)
    numbers.push_back(draw.normal(static_cast<std::uint64_t>(i)));
  return numbers;
}

// Updates rows [begin, begin + rows) of a parameter in fp64.
class Updates {
 public:
  Updates(OptimizerInterface& optimizer, const OpsBeside& ops, const KernelsOf& kernels, std::int64_t begin,
          std::int64_t rows)
      : begin_(begin), rows_(rows), program_(write(optimizer, ops, rows)), values_(*program_, kernels) {
    values_.set(parameter_, drawn("parameter", begin, rows, columns));
    values_.set(program_->runtime("lr"), {0.01});
  }

  // With another clip factor, gradients are so much larger: the update must be the same.
  void clip_by(double factor) { clip_ = factor; }
  void update(int step, bool keep) {
    values_.set(program_->runtime("clip"), {clip_});
    values_.set(program_->runtime("step"), {static_cast<double>(step)});
    values_.set(program_->runtime("keep"), {keep ? 1.0 : 0.0});
    Numbers gradient = drawn("gradient " + std::to_string(step), begin_, rows_, columns);
    for (double& x : gradient) x /= clip_;
    values_.set(program_->value(parameter_).gradient, gradient);
    values_.run(segment_id, FunctionKind::update, [](const KernelDef& kernel, const KernelCall& call) {
      try_memory(kernel, call);
      try_threads(kernel, call);
    });
  }
  std::string text() const { return to_text(*program_); }
  // Returns the parameter and its state.
  std::vector<Numbers> numbers() {
    std::vector<Numbers> all = {values_.numbers(parameter_)};
    for (Id state : program_->value(parameter_).states) all.push_back(values_.numbers(state));
    return all;
  }

 private:
  static constexpr std::int64_t columns = 6;

  std::unique_ptr<Program> write(OptimizerInterface& optimizer, const OpsBeside& ops, std::int64_t rows) {
    const Precision in_fp64{DType::f64, DType::f64, DType::f64, DType::f64};
    auto program = std::make_unique<Program>(ops.registry(), in_fp64, ModelContext{1, 1});
    const Segment segment = ProgramRef(&program_api(), program.get()).segment("trial");
    parameter_ = segment.matrix(segment.weight("parameter", {{"rows", rows}, {"columns", columns}}, zeros()),
                                {.columns = 1});
    segment.outgoing(segment.op("scale", {parameter_}, {{"factor", 1.0}}));
    add_backward(*program);
    add_update(*program, one_optimizer(optimizer, UpdateUnit::matrix));
    verify(*program);
    return program;
  }

  const std::int64_t begin_, rows_;
  double clip_ = 1;
  Id parameter_ = none;
  std::unique_ptr<Program> program_;
  Interpreter values_;
};

void check_clip(const std::vector<Numbers>& clipped, const std::vector<Numbers>& whole) {
  constexpr double tolerance = 1e-9;
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (std::size_t e = 0; e < whole[i].size(); ++e)
      if (!(std::abs(clipped[i][e] - whole[i][e]) <= tolerance * (1 + std::abs(whole[i][e]))))
        throw_error(
            ErrorCode::bad_input,
            "an update of gradients that are four times as large, with `clip` 0.25, gives other numbers: "
            "the op must multiply gradients by UpdateContext::clip");
}

void check_finite(const std::vector<Numbers>& numbers) {
  for (const Numbers& tensor : numbers)
    for (double x : tensor)
      if (!std::isfinite(x))
        throw_error(ErrorCode::bad_input,
                    "an update leaves a number that is not finite, of gradients that are");
}

}  // namespace

CheckFinding check_optimizer(const TriedPlugin& plugin, const std::vector<SearchPlace>& places) {
  auto& optimizer = *static_cast<OptimizerInterface*>(plugin.object);
  const CpuKernels cpu(places);
  constexpr std::int64_t rows = 4;
  plugin.doing("an update");
  try {
    const OpsBeside ops(plugin.path.parent_path(), places);
    const KernelsOf kernels = ops.with_kernels(cpu.kernels());
    Updates whole(optimizer, ops, kernels, 0, rows), first(optimizer, ops, kernels, 0, rows / 2),
        second(optimizer, ops, kernels, rows / 2, rows / 2), clipped(optimizer, ops, kernels, 0, rows);
    clipped.clip_by(0.25);
    check_alike_elsewhere("update()", [&] { return Updates(optimizer, ops, kernels, 0, rows).text(); });
    const std::vector<Numbers> start = whole.numbers();
    for (int step = 1; step <= 3; ++step) {
      const std::vector<Numbers> before = whole.numbers();
      whole.update(step, false);
      if (whole.numbers() != before)
        throw_error(ErrorCode::bad_input,
                    "an update changes something though `keep` is 0: give the op UpdateContext::keep");
      for (Updates* updates : {&whole, &first, &second, &clipped}) updates->update(step, true);
      check_finite(whole.numbers());
      check_clip(clipped.numbers(), whole.numbers());
    }
    if (whole.numbers().front() == start.front())
      throw_error(ErrorCode::bad_input,
                  "three updates with gradients that are not zero leave the parameter as it was");
    if (trait_of(plugin.note, "elementwise") != "yes")
      return {"not checked: elements apart, since it does not say elementwise=yes"};
    std::vector<Numbers> parts = first.numbers(), rest = second.numbers();
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].insert(parts[i].end(), rest[i].begin(), rest[i].end());
    if (parts != whole.numbers())
      throw_error(ErrorCode::bad_input,
                  "it says elementwise=yes, and gives other numbers for a parameter in two parts");
    return {};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::not_found) throw;
    return {detail::concat("not checked: ", error.what()), false};
  }
}

namespace {

// ------------------------------------------------------------------- strategy check

constexpr std::int64_t steps = 2;

// Returns the axis that it works on; empty means none.
std::string axis_of(const PluginNote& note, const std::string& given) {
  const Schema schema = trial_schema(note, given);
  const recipe::Option* const axis = schema.find("axis");
  if (!axis || axis->presence != recipe::Presence::has_default) return "";
  const auto* const one = std::get_if<std::string>(&axis->default_value);
  return one ? *one : std::get<std::vector<std::string>>(axis->default_value).front();
}

std::string strategy_text(const std::string& name, const std::string& axis) {
  return "[[strategy]]\nplugin = \"" + name + "\"\n" + (axis.empty() ? "" : "axis = \"" + axis + "\"\n");
}

// Returns the text by which a strategy finds the ops that it brings.
std::string ops_table(const OpsBeside& ops) {
  return ops.names().empty() ? "" : "[plugins]\nops = " + recipe::to_toml(recipe::Value(ops.names())) + "\n";
}

// Lays out two ranks on its axis, or on that of `data` where it has none; with ZeRO, where it is no part of
// that itself, over two ranks more.
std::string layout_of(const PluginNote& note, const std::string& given, bool with_zero) {
  const std::string axis = axis_of(note, given);
  const bool splits_batch = trait_lists(note, "splits", "batch");
  const bool own_axis = !axis.empty() && axis != "dp";
  std::string text =
      "[mesh]\n" + (own_axis ? axis + " = 2\n" : std::string()) + (!own_axis || with_zero ? "dp = 2\n" : "");
  if (note.name != "data" && !splits_batch && (!own_axis || with_zero)) text += strategy_text("data", "dp");
  if (own_axis && splits_batch && with_zero) text += strategy_text("data", "dp");
  text += strategy_text(note.name, "") + given + "\n";
  if (with_zero) text += strategy_text("zero", "dp");
  return text;
}

// Says whether the plugin itself, or its traits, refuse a layout; with any other error the plugin is wrong.
bool is_refusal(const Error& error, const PluginNote& note) {
  const std::string_view said = error.what();
  return said.find(describe(note) + ": ") != said.npos || said.find("cannot combine strategy '") != said.npos;
}

void check_equal(const LayoutVerdict& verdict, const std::string& what) {
  if (!verdict.equal())
    throw_error(ErrorCode::bad_input, what, ": ", verdict.ranks, " ranks do not compute what one does; ",
                to_text(verdict));
}

CheckFinding check_in_recipe(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                             const std::string& file) {
  plugin.doing(file);
  Arguments arguments;
  for (const SearchPlace& place : places) arguments.plugin_paths.push_back(place.folder);
  const Opened opened = open_recipe(arguments, file);
  const std::vector<RecipeSection> used = opened.recipe->strategies();
  if (std::none_of(used.begin(), used.end(),
                   [&](const RecipeSection& one) { return one.plugin() == plugin.note.name; }))
    throw_error(ErrorCode::bad_input, file, " does not name the strategy '", plugin.note.name, "'; add it");
  const LayoutVerdict verdict =
      verify_layout(with_thread_ranks(*opened.recipe), opened.plugins->places(), steps);
  check_equal(verdict, file);
  return {detail::concat(file, " on ", verdict.ranks, " ranks")};
}

}  // namespace

CheckFinding check_strategy(const TriedPlugin& plugin, const std::vector<SearchPlace>& others,
                            const std::string& given, const std::optional<std::filesystem::path>& in_recipe) {
  std::vector<SearchPlace> places = {{plugin.path.parent_path(), "the plugin's folder"}};
  places.insert(places.end(), others.begin(), others.end());
  if (in_recipe) return check_in_recipe(plugin, places, in_recipe->string());
  const TrialFolder folder;
  const std::string known_ops = ops_table(OpsBeside(plugin.path.parent_path(), others));
  std::vector<std::string> tried, left;
  for (const BaseModel& model : trial_models)
    for (const bool with_zero : {false, true}) {
      if (with_zero && plugin.note.name == "zero") continue;
      const std::string what = detail::concat(model.plugin, with_zero ? " with ZeRO" : "");
      plugin.doing(what);
      try {
        PluginHost plugins(places);
        const Recipe recipe =
            tiny_recipe(model, known_ops + layout_of(plugin.note, given, with_zero), folder.path(), plugins);
        check_alike_elsewhere("apply()", [&] { return to_text(Assembly(recipe, plugins).program()); });
        const LayoutVerdict verdict = verify_layout(recipe, places, steps);
        check_equal(verdict, what);
        tried.push_back(detail::concat(what, " on ", verdict.ranks, " ranks"));
      } catch (const Error& error) {
        if (!is_refusal(error, plugin.note)) throw_error(error.code(), what, ": ", error.what());
        left.push_back(detail::concat(what, " (", error.what(), ")"));
      }
    }
  std::string detail = join(tried, ", ");
  if (!left.empty()) detail += (tried.empty() ? "" : "; ") + ("not checked: " + join(left, ", "));
  if (tried.empty()) detail += "; give a recipe that it fits by --recipe";
  return {detail, !tried.empty()};
}

}  // namespace prun
