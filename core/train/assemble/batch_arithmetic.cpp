#include "train/assemble/batch_arithmetic.hpp"

#include <algorithm>

#include "plugin/traits.hpp"

namespace prun {
namespace {

// Multiplies the ranks of all axes that a strategy splits the batch over.
std::int64_t data_ranks(const Recipe& recipe, PluginHost& plugins) {
  const Mesh mesh = mesh_of(recipe);
  std::int64_t ranks = 1;
  for (const RecipeSection& section : recipe.strategies()) {
    const PluginNote& note = plugins.note("strategy", section.plugin());
    const std::optional<std::string> name = axis_of(section);
    if (!trait_lists(note, "splits", "batch") || !name) continue;
    if (const AxisId axis = mesh.find(*name); axis != no_axis) ranks *= mesh.extent(axis);
  }
  return ranks;
}

void refuse_mesh(const Recipe& recipe, const std::string& key) {
  Diagnostics problems;
  problems.add(recipe.problem(
      key, detail::concat("the mesh has more than ", most_ranks, " ranks, the most that can be planned")));
  problems.throw_if_any();
}

}  // namespace

std::optional<std::string> axis_of(const RecipeSection& strategy) {
  const recipe::Entry* const entry = strategy.find("axis");
  if (!entry || !entry->value) return std::nullopt;
  const auto* const name = std::get_if<std::string>(&*entry->value);
  return name ? std::optional(*name) : std::nullopt;
}

std::vector<std::string> axes_named(const RecipeSection& strategy) {
  if (const std::optional<std::string> one = axis_of(strategy)) return {*one};
  const recipe::Entry* const entry = strategy.find("axis");
  if (!entry || !entry->value) return {};
  const auto* const names = std::get_if<std::vector<std::string>>(&*entry->value);
  return names ? *names : std::vector<std::string>();
}

// Axes keep the order in which they are written: the last axis varies fastest from rank to rank.
Mesh mesh_of(const Recipe& recipe) {
  std::vector<Axis> axes;
  std::int64_t room = most_ranks;
  const RecipeSection section = recipe.section("mesh");
  for (const auto& entry : section.entries()) {
    if (!entry.value) continue;
    const std::int64_t extent = std::get<std::int64_t>(*entry.value);
    axes.push_back({entry.path.substr(entry.path.rfind('.') + 1), extent});
    room /= extent;
    if (room == 0) refuse_mesh(recipe, entry.path);
  }
  return Mesh(std::move(axes));
}

BatchArithmetic BatchArithmetic::of(const Recipe& recipe, PluginHost& plugins) {
  BatchArithmetic batch;
  batch.micro = recipe.integer("batch.micro");
  batch.ranks = data_ranks(recipe, plugins);
  batch.seq = recipe.integer("model.seq");
  batch.vertical = recipe.text("batch.order") == "breadth_first";
  batch.lanes = static_cast<std::int32_t>(recipe.integer("batch.interleave"));
  return batch.with_global(recipe.integer("batch.global"));
}

BatchArithmetic BatchArithmetic::with_global(std::int64_t sequences) const {
  BatchArithmetic batch = *this;
  const std::int64_t at_once = std::max<std::int64_t>(micro, 1) * ranks;
  batch.global = sequences;
  batch.accumulate = (sequences + at_once - 1) / at_once;
  return batch;
}

std::string BatchArithmetic::text() const {
  const std::string padded = padding() ? detail::concat(" - ", padding(), " padding") : "";
  const std::string order = vertical    ? ", layer by layer,"
                            : lanes > 1 ? detail::concat(", ", lanes, " side by side,")
                                        : "";
  return detail::concat(global, " sequences = ", micro, " micro x ", accumulate, " accumulate", order, " x ",
                        ranks, ranks == 1 ? " rank" : " ranks", padded, " = ", tokens(), " tokens a step");
}

namespace {

void check_lanes(const BatchArithmetic& batch, bool in_pipeline) {
  const std::string set = detail::concat("batch.interleave is ", batch.lanes);
  if (in_pipeline)
    throw_error(ErrorCode::unsupported, "cannot combine ", set,
                " with a pipeline: its schedule decides which microbatch a stage takes next; leave one of "
                "the two out");
  if (batch.vertical)
    throw_error(ErrorCode::unsupported, "cannot combine ", set,
                " with batch.order = \"breadth_first\", which takes microbatches through a layer one after "
                "the other; leave one of the two out");
  if (batch.accumulate % batch.lanes != 0)
    throw_error(ErrorCode::bad_input, "cannot apply ", set, ": a step has ", batch.accumulate,
                batch.accumulate == 1 ? " microbatch" : " microbatches", " of batch.micro = ", batch.micro,
                "; choose a number that divides ", batch.accumulate, ", or a smaller batch.micro");
}

}  // namespace

// Checks rows: the traits are known before the program, and the batch was counted by them.
void check_rows(const Program& program, const BatchArithmetic& batch) {
  const std::int64_t rows = program.local_dims(program.inputs().front()).front().extent;
  if (rows != batch.micro)
    throw_error(ErrorCode::bad_input, "cannot split a microbatch of batch.micro = ", batch.micro,
                ": a rank would have ", rows,
                " sequences of it; a strategy that splits the batch has the trait splits=batch, and comes "
                "before others that split over the same axis");
}

void check_order(const BatchArithmetic& batch, bool in_pipeline) {
  if (in_pipeline && batch.vertical)
    throw_error(ErrorCode::unsupported,
                "cannot combine batch.order = \"breadth_first\" with a pipeline, whose stages pass on one "
                "microbatch after the other; leave one of the two out");
  if (batch.lanes > 1) check_lanes(batch, in_pipeline);
}

}  // namespace prun
