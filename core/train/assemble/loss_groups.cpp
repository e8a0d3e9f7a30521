#include "train/assemble/loss_groups.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

constexpr std::int64_t most_groups = 4096;

std::vector<std::string> roles_of(const RecipeSection& set, PluginHost& plugins) {
  std::vector<std::string> roles;
  const std::string_view named = trait_of(plugins.note("data", set.plugin()), "roles");
  if (!named.empty())
    for (const std::string_view role : split(named, ',')) roles.emplace_back(trim(role));
  return roles;
}

// Adds a group's sums to the part of that name.
void add(std::vector<LossGroups::Part>& parts, const std::string& name, double loss, double targets) {
  if (targets == 0) return;
  auto part = std::find_if(parts.begin(), parts.end(),
                           [&](const LossGroups::Part& known) { return known.name == name; });
  if (part == parts.end()) part = parts.insert(part, {name});
  part->loss += loss;
  part->targets += static_cast<std::int64_t>(targets);
}

void divide(std::vector<LossGroups::Part>& parts) {
  for (LossGroups::Part& part : parts) part.loss /= part.targets;
}

}  // namespace

LossGroups LossGroups::of(const Recipe& recipe, PluginHost& plugins) {
  LossGroups groups;
  groups.by_set_ = recipe.flag("run.loss_by_set");
  groups.by_role_ = recipe.flag("run.loss_by_role");
  if (!groups.by_set_ && !groups.by_role_) return groups;
  std::vector<RecipeSection> sections = recipe.sections("data.blend");
  sections.insert(sections.begin(), recipe.section("data"));
  bool any_roles = false;
  for (const RecipeSection& section : sections) {
    Set set{section.path(), {}, groups.count_};
    if (groups.by_role_) set.roles = roles_of(section, plugins);
    any_roles |= !set.roles.empty();
    groups.count_ += std::max<std::int64_t>(1, static_cast<std::int64_t>(set.roles.size()));
    groups.sets_.push_back(std::move(set));
  }
  if (groups.by_role_ && !any_roles)
    throw_error(ErrorCode::bad_input,
                "cannot apply run.loss_by_role: no data plugin of the recipe has roles (trait `roles`); "
                "leave it out");
  if (groups.count_ > most_groups)
    throw_error(ErrorCode::bad_input, "cannot report the loss of ", groups.count_,
                " sets and roles: at most ", most_groups,
                " are possible; leave run.loss_by_set and run.loss_by_role out");
  return groups;
}

std::vector<LossGroups::Part> LossGroups::parts(std::span<const double> sums) const {
  std::vector<Part> sets, roles;
  for (const Set& set : sets_)
    for (std::size_t i = 0; i < std::max<std::size_t>(1, set.roles.size()); ++i) {
      const std::size_t at = 2 * (static_cast<std::size_t>(set.first) + i);
      if (by_set_) add(sets, set.name, sums[at], sums[at + 1]);
      if (!set.roles.empty()) add(roles, "role." + set.roles[i], sums[at], sums[at + 1]);
    }
  sets.insert(sets.end(), roles.begin(), roles.end());
  divide(sets);
  return sets;
}

}  // namespace prun
