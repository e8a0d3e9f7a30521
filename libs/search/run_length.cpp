#include "search/run_length.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "plugin/plugin_lines.hpp"
#include "prun/data.hpp"
#include "train/assemble/batch_ramp.hpp"
#include "train/assemble/corrupted_spans.hpp"

namespace prun {

RunLength with_run_length(const Recipe& recipe, PluginHost& plugins) {
  const double epochs = recipe.number("run.epochs");
  if (epochs == 0) return {recipe, ""};
  if (!recipe.sections("data.blend").empty())
    throw_error(
        ErrorCode::bad_input,
        "cannot apply run.epochs with [[data.blend]], whose sets each have epochs; set run.steps instead");
  const RecipeSection section = recipe.section("data");
  DataInfo info;
  const OpenedUnsaid to_count;
  recipe::in_section(section, [&] {
    raise(plugins.create<DataInterface>("data", section)->open(text_of_sample(recipe), &info));
  });
  const double held_out = std::ceil(recipe.number("data.validation") * static_cast<double>(info.samples));
  const double samples = static_cast<double>(info.samples) - held_out;
  const BatchRamp ramp = BatchRamp::of(recipe);
  const std::int64_t global = recipe.integer("batch.global"),
                     steps = ramp.steps_for(static_cast<std::int64_t>(std::ceil(epochs * samples - 1e-6)));
  const std::int64_t length = std::clamp<std::int64_t>(steps, 1, recipe.integer("run.steps"));
  return {recipe.with("run.steps", std::to_string(length)).with("run.epochs", "0"),
          format("run.epochs = %g of %.0f samples are %lld steps of %s%lld%s", epochs, samples,
                 static_cast<long long>(steps), ramp.rungs().empty() ? "" : "at last ",
                 static_cast<long long>(global), length < steps ? ", and run.steps ends it before" : "")};
}

}  // namespace prun
