#include "train/assemble/batch_arithmetic.hpp"

#include <algorithm>
#include <functional>

#include "plugin/traits.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- batch arithmetic

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
  batch.interleave = static_cast<std::int32_t>(recipe.integer("batch.interleave"));
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
  const std::string order = vertical         ? ", layer by layer,"
                            : interleave > 1 ? detail::concat(", ", interleave, " side by side,")
                                             : "";
  return detail::concat(global, " sequences = ", micro, " micro x ", accumulate, " accumulate", order, " x ",
                        ranks, ranks == 1 ? " rank" : " ranks", padded, " = ", tokens(), " tokens a step");
}

namespace {

void check_interleave(const BatchArithmetic& batch, bool in_pipeline) {
  const std::string set = detail::concat("batch.interleave is ", batch.interleave);
  if (in_pipeline)
    throw_error(ErrorCode::unsupported, "cannot combine ", set,
                " with a pipeline: its schedule decides which microbatch a stage takes next; leave one of "
                "the two out");
  if (batch.vertical)
    throw_error(ErrorCode::unsupported, "cannot combine ", set,
                " with batch.order = \"breadth_first\", which takes microbatches through a layer one after "
                "the other; leave one of the two out");
  if (batch.accumulate % batch.interleave != 0)
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
  if (batch.interleave > 1) check_interleave(batch, in_pipeline);
}

namespace {

// ------------------------------------------------------------------- batch ramp

// Each size has a plan and its queues.
constexpr std::int64_t most_rungs = 128;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Holds the ramp as the recipe states it.
struct RampSettings {
  explicit RampSettings(const Recipe& recipe)
      : section(recipe.section("batch")),
        start(section.integer("ramp.start")),
        increment(section.integer("ramp.increment")),
        samples(section.integer("ramp.samples")),
        sizes(section.integers("ramp.sizes")),
        until(section.integers("ramp.until")),
        full(section.integer("global")) {}

  bool is_even() const { return start > 0; }
  bool is_listed() const { return !sizes.empty(); }

  RecipeSection section;
  std::int64_t start, increment, samples;
  const std::vector<std::int64_t>&sizes, &until;
  std::int64_t full;
};

struct Wrong {
  const char* key;
  std::string text;
};

std::optional<Wrong> wrong_even(const RampSettings& said) {
  if (said.increment == 0 || said.samples == 0)
    return Wrong{"start",
                 detail::concat("batch.ramp.start = ", said.start,
                                " needs batch.ramp.increment, by how many sequences a step grows at a "
                                "time, and batch.ramp.samples, over how many samples")};
  if (said.start >= said.full)
    return Wrong{"start", detail::concat("batch.ramp.start = ", said.start,
                                         " is to grow to batch.global = ", said.full, ", which is not more")};
  const std::int64_t way = said.full - said.start;
  if (way % said.increment != 0)
    return Wrong{"increment",
                 detail::concat("from batch.ramp.start = ", said.start, " to batch.global = ", said.full,
                                " are ", way, " sequences, no multiple of batch.ramp.increment = ",
                                said.increment, "; take one that divides ", way)};
  if (way / said.increment > most_rungs)
    return Wrong{
        "increment",
        detail::concat("batch.ramp.increment = ", said.increment, " makes ", way / said.increment,
                       " sizes below batch.global, and there may be ", most_rungs, "; take a larger one")};
  return {};
}

std::optional<Wrong> wrong_list(const RampSettings& said) {
  if (said.sizes.size() != said.until.size())
    return Wrong{"until",
                 detail::concat("batch.ramp.sizes has ", said.sizes.size(), " sizes and batch.ramp.until ",
                                said.until.size(), " steps; each size has the last step that it is for")};
  if (static_cast<std::int64_t>(said.sizes.size()) > most_rungs)
    return Wrong{"sizes", detail::concat("batch.ramp.sizes has ", said.sizes.size(),
                                         " sizes, and there may be ", most_rungs)};
  if (said.until.front() < 1 ||
      std::adjacent_find(said.until.begin(), said.until.end(), std::greater_equal<>()) != said.until.end())
    return Wrong{"until", "the steps of batch.ramp.until go up from 1 on"};
  for (const std::int64_t size : said.sizes)
    if (size < 1 || size > said.full)
      return Wrong{"sizes",
                   detail::concat("batch.ramp.sizes has ", size,
                                  ", and a step has from 1 to batch.global = ", said.full, " sequences")};
  return {};
}

std::optional<Wrong> wrong_words(const RampSettings& said) {
  if (said.is_even() && (said.is_listed() || !said.until.empty()))
    return Wrong{"sizes",
                 "batch.ramp.start says a ramp of equal increments, and batch.ramp.sizes with "
                 "batch.ramp.until one step by step; leave one of the two out"};
  if (said.is_even()) return wrong_even(said);
  if (said.increment > 0 || said.samples > 0)
    return Wrong{"start",
                 "batch.ramp.increment and batch.ramp.samples are for a ramp from batch.ramp.start on; "
                 "give it, or leave them out"};
  if (said.is_listed() || !said.until.empty()) return wrong_list(said);
  return {};
}

std::optional<Wrong> wrong_size(const RampSettings& said, std::int64_t size, const BatchArithmetic& batch,
                                bool pads) {
  const char* const key = said.is_even() ? "start" : "sizes";
  const std::int64_t at_once = batch.micro * batch.ranks;
  if (size % at_once != 0 && !pads)
    return Wrong{
        key, detail::concat("batch.ramp comes to steps of ", size, size == 1 ? " sequence" : " sequences",
                            ", no multiple of batch.micro = ", batch.micro, " x ", batch.ranks,
                            batch.ranks == 1 ? " rank = " : " data-parallel ranks = ", at_once,
                            "; let all its sizes be multiples of ", at_once, ", or set batch.pad = true")};
  const std::int64_t microbatches = quotient_up(size, at_once);
  if (microbatches % batch.interleave != 0)
    return Wrong{key, detail::concat("batch.ramp comes to steps of ", microbatches,
                                     microbatches == 1 ? " microbatch" : " microbatches",
                                     ", and batch.interleave = ", batch.interleave, " takes ",
                                     batch.interleave, " at a time; let all its sizes be multiples of ",
                                     at_once * batch.interleave, ", or interleave fewer")};
  return {};
}

}  // namespace

// Size number i lasts until i + 1 of so many equal parts of the samples are over.
BatchRamp BatchRamp::even(std::int64_t start, std::int64_t increment, std::int64_t samples,
                          std::int64_t full) {
  BatchRamp ramp;
  ramp.full_ = full;
  const std::int64_t parts = (full - start) / increment;
  for (std::int64_t i = 0; i < parts; ++i)
    ramp.rungs_.push_back({start + i * increment, quotient_up((i + 1) * samples, parts)});
  return ramp;
}

BatchRamp BatchRamp::of(const Recipe& recipe) {
  const RampSettings said(recipe);
  if (said.is_even()) return even(said.start, said.increment, said.samples, said.full);
  BatchRamp ramp;
  ramp.full_ = said.full;
  std::int64_t samples = 0, steps = 0;
  for (std::size_t i = 0; i < said.sizes.size(); ++i) {
    samples += (said.until[i] - steps) * said.sizes[i];
    steps = said.until[i];
    ramp.rungs_.push_back({said.sizes[i], samples});
  }
  return ramp;
}

std::int64_t BatchRamp::global_at(std::int64_t samples) const {
  for (const Rung& rung : rungs_)
    if (samples < rung.until) return rung.global;
  return full_;
}

// Lists the stretches. A step may take more samples than are left of its size, and of the next one.
std::vector<BatchRamp::Stretch> BatchRamp::stretches() const {
  std::vector<Stretch> all;
  std::int64_t samples = 0, step = 1;
  const auto add = [&](std::int64_t global) {
    if (all.empty() || all.back().global != global) all.push_back({global, step, samples});
  };
  for (const Rung& rung : rungs_) {
    if (samples >= rung.until) continue;
    add(rung.global);
    const std::int64_t steps = quotient_up(rung.until - samples, rung.global);
    step += steps;
    samples += steps * rung.global;
  }
  add(full_);
  return all;
}

std::int64_t BatchRamp::steps_for(std::int64_t samples) const {
  std::int64_t steps = 0;
  const std::vector<Stretch> all = stretches();
  for (std::size_t i = 0; i < all.size() && all[i].first_sample < samples; ++i) {
    const std::int64_t end = i + 1 < all.size() ? std::min(samples, all[i + 1].first_sample) : samples;
    steps += quotient_up(end - all[i].first_sample, all[i].global);
  }
  return steps;
}

std::string BatchRamp::text() const {
  constexpr std::size_t shown = 4;
  const std::vector<Stretch> all = stretches();
  std::string text = detail::concat(all.front().global, " sequences a step");
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (i < shown || i + 1 == all.size())
      text += detail::concat(", ", all[i].global, " from step ", all[i].first_step, " on");
    else if (i == shown)
      text += detail::concat(", and so on in ", all.size(), " sizes");
  }
  return text;
}

Recipe without_ramp(const Recipe& recipe) {
  if (BatchRamp::of(recipe).rungs().empty()) return recipe;
  Recipe steady = recipe;
  for (const char* key : {"batch.ramp.start", "batch.ramp.increment", "batch.ramp.samples"})
    steady = steady.with(key, "0");
  for (const char* key : {"batch.ramp.sizes", "batch.ramp.until"}) steady = steady.with(key, "[]");
  return steady;
}

void check_ramp(const Recipe& recipe, const BatchArithmetic& batch, Diagnostics& problems) {
  const RampSettings said(recipe);
  std::optional<Wrong> wrong = wrong_words(said);
  const BatchRamp ramp = wrong ? BatchRamp() : BatchRamp::of(recipe);
  for (const BatchRamp::Rung& rung : ramp.rungs())
    if (!wrong) wrong = wrong_size(said, rung.global, batch, recipe.flag("batch.pad"));
  if (wrong) problems.add(recipe.problem(std::string("batch.ramp.") + wrong->key, std::move(wrong->text)));
}

}  // namespace prun
