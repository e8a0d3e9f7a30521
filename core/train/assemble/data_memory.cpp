#include "train/assemble/data_memory.hpp"

#include "base/text.hpp"
#include "plugin/plugin_lines.hpp"
#include "plugin/traits.hpp"
#include "prun/data.hpp"

namespace prun {
namespace {

std::int64_t held_by(const RecipeSection& section, PluginHost& plugins, std::int64_t seq) {
  const std::string_view each = trait_of(plugins.note("data", section.plugin()), "token_bytes");
  if (each.empty()) return 0;
  DataInfo info;
  const OpenedUnsaid to_measure;
  try {
    raise(plugins.create<DataInterface>("data", section)->open(seq, &info));
  } catch (const Error&) {
    return 0;
  }
  return info.tokens * std::stoll(std::string(each));
}

}  // namespace

std::int64_t data_bytes(const Recipe& recipe, PluginHost& plugins, std::int64_t seq, bool trains,
                        bool evaluates) {
  std::int64_t own = held_by(recipe.section("data"), plugins, seq), apart = 0;
  for (const RecipeSection& section : recipe.sections("data.blend")) own += held_by(section, plugins, seq);
  for (const RecipeSection& section : recipe.sections("validation"))
    if (evaluates) apart += held_by(section, plugins, seq);
  const bool keeps_a_part = recipe.sections("validation").empty();
  return (trains ? own : 0) + (evaluates ? keeps_a_part ? own : apart : 0);
}

}  // namespace prun
