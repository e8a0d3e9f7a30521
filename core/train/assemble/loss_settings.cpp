#include "train/assemble/loss_settings.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "prun/types.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- loss groups

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

namespace {

// ------------------------------------------------------------------- loss scale

// States how the rules of other systems differ beyond numbers that a recipe gives. A rule is a line here and
// a word of the schema; a recipe that names none has the first, if it computes in fp16.
struct Rule {
  const char* name;
  double initial;  // 0 if the recipe must give it
  bool moves;
  bool ends_at_least;
  std::int64_t late;
};

constexpr Rule rules[] = {
    {"deepspeed", 0x1p16, true, true, 1},
    {"megatron", 0x1p32, true, false, 0},
    {"static", 0, false, false, 0},
};

const Rule& rule_of(const Recipe& recipe) {
  if (!recipe.has("loss_scale.rule")) return rules[0];
  const auto named = [&](const Rule& rule) { return recipe.text("loss_scale.rule") == rule.name; };
  return *std::find_if(std::begin(rules), std::end(rules), named);
}

double initial_of(const Recipe& recipe) {
  return recipe.has("loss_scale.initial") ? recipe.number("loss_scale.initial") : rule_of(recipe).initial;
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5;
}

}  // namespace

bool scales_loss(const Recipe& recipe) {
  return recipe.has("loss_scale.rule") || recipe.text("precision.compute") == name_of(DType::f16);
}

bool skips_non_finite(const Recipe& recipe) {
  return recipe.has("run.on_nonfinite") ? recipe.text("run.on_nonfinite") == "skip" : scales_loss(recipe);
}

LossScaler::LossScaler(const Recipe& recipe) {
  if (!scales_loss(recipe)) return;
  const Rule& rule = rule_of(recipe);
  moves_ = rule.moves;
  ends_at_least_ = rule.ends_at_least;
  late_ = rule.late;
  restored_at_once_ = recipe.flag("loss_scale.consecutive_hysteresis");
  window_ = recipe.integer("loss_scale.window");
  hysteresis_ = recipe.integer("loss_scale.hysteresis");
  initial_ = initial_of(recipe);
  least_ = recipe.number("loss_scale.least");
}

LossScale LossScaler::begin() const {
  if (initial_ == 0) return {};
  return {initial_, 0, hysteresis_};
}

LossScale LossScaler::resumed(const LossScale& saved) const {
  return moves_ && saved.scale > 0 ? saved : begin();
}

bool LossScaler::is_spent(const LossScale& now) const {
  return ends_at_least_ && falls(now) && now.scale == least_;
}

LossScale LossScaler::after(LossScale now, bool finite) const {
  if (!moves_) return now;
  if (!finite) {
    if (falls(now))
      now.scale = std::max(now.scale / 2, least_);
    else
      --now.spared;
    now.clean = 0;
    return now;
  }
  ++now.clean;
  const std::int64_t counted = now.clean - late_;
  const bool rises = counted > 0 && counted % window_ == 0;
  if (rises) now.scale *= 2;
  if (rises || restored_at_once_) now.spared = hysteresis_;
  return now;
}

void check_loss_scale(const Recipe& recipe, Diagnostics& problems) {
  if (!scales_loss(recipe)) return;
  const auto wrong = [&](const char* key, const std::string& what) {
    problems.add(recipe.problem(key, what));
  };
  const Rule& rule = rule_of(recipe);
  const double initial = initial_of(recipe), least = recipe.number("loss_scale.least");
  if (initial == 0) {
    wrong("loss_scale.rule", "loss_scale.rule = \"static\" needs the scale, loss_scale.initial");
    return;
  }
  if (!is_power_of_two(initial))
    wrong("loss_scale.initial",
          detail::concat("loss_scale.initial = ", initial,
                         " is not a power of two and would round what it multiplies; set ",
                         std::exp2(std::floor(std::log2(initial))), " or ",
                         std::exp2(std::ceil(std::log2(initial)))));
  if (!is_power_of_two(least))
    wrong("loss_scale.least", detail::concat("loss_scale.least = ", least, " is not a power of two; set ",
                                             std::exp2(std::floor(std::log2(least))), " or ",
                                             std::exp2(std::ceil(std::log2(least)))));
  if (rule.moves && least > initial)
    wrong("loss_scale.least", detail::concat("loss_scale.least = ", least, " is above the initial scale, ",
                                             initial, "; lower it, or raise loss_scale.initial"));
  if (rule.moves && !skips_non_finite(recipe))
    wrong("run.on_nonfinite",
          "cannot lower the loss scale with run.on_nonfinite = \"stop\", which ends the run at a non-finite "
          "gradient; leave it out, or set "
          "loss_scale.rule = \"static\"");
}

}  // namespace prun
