#include "conform/model_check.hpp"

#include <algorithm>
#include <limits>

#include "base/random.hpp"
#include "conform/differentiated.hpp"
#include "conform/isolated.hpp"
#include "conform/ops_beside.hpp"
#include "conform/tiny_recipe.hpp"
#include "conform/trial_options.hpp"
#include "prun/op_plugin.hpp"

namespace prun {
namespace {

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
std::int64_t vocabulary(const Program& program) {
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
  const std::int64_t rows = vocabulary(program);
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

}  // namespace prun
