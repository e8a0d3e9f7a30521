#include "search/open_choices.hpp"

#include <algorithm>
#include <tuple>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- variables

class NoteReader {
 public:
  NoteReader(const PluginNote& note, PluginHost& plugins)
      : note_(note), plugins_(plugins), schema_(parse_schema(note.options, describe(note))) {}

  StrategyVariables read() {
    StrategyVariables read;
    read.plugin = note_.name;
    read.phase = items_of_trait(trait_of(note_, "phase")).front();
    read.added = exactness_of(trait_of(note_, "tune"));
    read.splits_batch = trait_lists(note_, "splits", "batch");
    read_axis(read);
    add_options("varies", Exactness::exact, read.options);
    add_options("rounds", Exactness::rounds, read.options);
    for (const std::string_view key : items_of("changes")) {
      option("changes", key);
      read.never.emplace_back(key);
    }
    return read;
  }

 private:
  static std::optional<Exactness> exactness_of(std::string_view text) {
    if (text == "exact") return Exactness::exact;
    if (text == "rounds") return Exactness::rounds;
    if (text == "changes") return Exactness::changes;
    return {};
  }

  std::vector<std::string_view> items_of(std::string_view trait) const {
    const std::string_view text = trait_of(note_, trait);
    return text.empty() ? std::vector<std::string_view>{} : items_of_trait(text);
  }

  static std::string_view without_brackets(std::string_view value) {
    const bool has_them = value.starts_with('(') && value.ends_with(')');
    return has_them ? value.substr(1, value.size() - 2) : value;
  }

  template <class... Parts>
  [[noreturn]] void fail(std::string_view trait, const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, describe(note_), ": its trait ", trait, " ", parts...);
  }

  const recipe::Option& option(std::string_view trait, std::string_view key) const {
    const recipe::Option* const found = schema_.find(key);
    if (!found) fail(trait, "names ", in_quotes(key), ", and it has no such option");
    return *found;
  }

  // Reads the axis: without the trait it is one of the strategy's own, if it has any.
  void read_axis(StrategyVariables& read) const {
    const recipe::Option* const axis = schema_.find("axis");
    const std::string_view said = trait_of(note_, "axis");
    if (!axis) {
      if (!said.empty()) fail("axis", "is ", in_quotes(said), ", and it has no option axis");
      return;
    }
    read.axis = said == "batch" ? AxisUse::batch : AxisUse::own;
    read.many_axes = axis->type == recipe::OptionType::names;
    if (axis->presence != recipe::Presence::has_default) return;
    if (const auto* const one = std::get_if<std::string>(&axis->default_value)) read.own_axis = *one;
    if (const auto* const all = std::get_if<std::vector<std::string>>(&axis->default_value))
      if (!all->empty()) read.own_axis = all->front();
  }

  void add_options(std::string_view trait, Exactness exactness, std::vector<VariedOption>& options) {
    for (const std::string_view item : items_of(trait)) {
      const std::size_t colon = item.find(':');
      const std::string_view key = trim(item.substr(0, colon));
      const recipe::Option& of = option(trait, key);
      VariedOption variable{std::string(key), {}, exactness};
      if (colon == std::string_view::npos)
        variable.values = values_of(trait, of);
      else
        for (const std::string_view value : split(item.substr(colon + 1), '|'))
          add_value(trait, of, std::string(without_brackets(trim(value))), variable);
      options.push_back(std::move(variable));
    }
  }

  // Returns the values that the option allows, its default first.
  std::vector<std::string> values_of(std::string_view trait, const recipe::Option& option) const {
    std::vector<std::string> values;
    if (option.type == recipe::OptionType::boolean) values = {"false", "true"};
    for (const std::string& choice : option.choices) values.push_back(choice);
    if (values.empty())
      fail(trait, "names ", in_quotes(option.key),
           " without values, and that is no choice; list them, such as ", option.key, ":1|2");
    if (option.presence == recipe::Presence::has_default) {
      std::string usual = recipe::to_toml(option.default_value);
      std::erase(usual, '"');
      const auto found = std::find(values.begin(), values.end(), usual);
      if (found != values.end()) std::rotate(values.begin(), found, found + 1);
    }
    return values;
  }

  void add_value(std::string_view trait, const recipe::Option& option, const std::string& value,
                 VariedOption& variable) const {
    if (value.starts_with('@')) {
      // Training with weights of another update changes what is trained.
      for (const std::string& name : plugins_.catalog().names(value.substr(1)))
        if (trait_of(plugins_.note(value.substr(1), name), "delay").empty()) variable.values.push_back(name);
      return;
    }
    const bool is_choice = option.choices.empty() || std::find(option.choices.begin(), option.choices.end(),
                                                               value) != option.choices.end();
    const auto read = recipe::parse_value(option.type, value);
    const auto* const whole = read ? std::get_if<std::int64_t>(&*read) : nullptr;
    if (!read || !is_choice || (whole && !option.in_range(static_cast<double>(*whole))))
      fail(trait, "lists ", in_quotes(value), " for ", in_quotes(option.key), ", which that cannot be");
    variable.values.push_back(value);
  }

  const PluginNote& note_;
  PluginHost& plugins_;
  const Schema schema_;
};

}  // namespace

StrategyVariables variables_of(const PluginNote& strategy, PluginHost& plugins) {
  return NoteReader(strategy, plugins).read();
}

namespace {

// ------------------------------------------------------------------- open choices

// Says whether a user wrote a value, rather than that it is left open.
bool is_said(const recipe::Entry& entry) {
  if (!entry.at.source || !entry.value) return false;
  const auto* const text = std::get_if<std::string>(&*entry.value);
  return !text || *text != automatic;
}

// Returns what of a strategy's options frees memory: of values for one option, the last frees most.
std::optional<ChosenOptions> freed_by(const PluginNote& note) {
  ChosenOptions most;
  for (auto& [key, value] : settings_in(trait_of(note, "frees"))) most[key] = value;
  if (most.empty()) return {};
  return most;
}

// Returns a value as --set takes it; an open one is the first.
std::string value_in(const Recipe& recipe, const std::string& path, const VariedOption& variable) {
  const recipe::Entry& entry = recipe.entry(path);
  if (!entry.value) return variable.values.front();
  if (const auto* const text = std::get_if<std::string>(&*entry.value))
    return *text == automatic ? variable.values.front() : *text;
  return recipe::to_toml(*entry.value);
}

std::size_t place_of_phase(const std::string& phase) {
  return static_cast<std::size_t>(std::find(phases.begin(), phases.end(), phase) - phases.begin());
}

// Orders strategies: those that split the batch come before others of their phase.
bool comes_before(const SpacePart& a, const SpacePart& b) {
  const auto key = [](const SpacePart& part) {
    return std::tuple(place_of_phase(part.variables.phase), !part.variables.splits_batch,
                      std::string_view(part.variables.plugin));
  };
  return key(a) < key(b);
}

class ChoiceReader {
 public:
  OpenChoices read(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope, std::int64_t ranks) {
    open_.pads = recipe.flag("batch.pad");
    read_batches(recipe, scope.most_batch);
    if (is_said(recipe.entry("batch.micro")) && recipe.integer("batch.micro") > 0)
      open_.said_micro = recipe.integer("batch.micro");
    add_recipe_parts(recipe, plugins);
    add_others(plugins, scope.rounding);
    keep_options(recipe, scope.rounding);
    read_mesh(recipe);
    set_ranks(ranks);
    read_keys(recipe);
    return std::move(open_);
  }

 private:
  void add_recipe_parts(const Recipe& recipe, PluginHost& plugins);
  void add_others(PluginHost& plugins, bool rounding);
  void keep_options(const Recipe& recipe, bool rounding);
  void read_mesh(const Recipe& recipe);
  bool is_free(const SpacePart& part) const;
  void set_ranks(std::int64_t ranks);
  void read_batches(const Recipe& recipe, std::int64_t most);
  void read_keys(const Recipe& recipe);

  OpenChoices open_;
};

void ChoiceReader::add_recipe_parts(const Recipe& recipe, PluginHost& plugins) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const PluginNote& note = plugins.note("strategy", strategies[i].plugin());
    SpacePart part{variables_of(note, plugins), i, "", freed_by(note)};
    if (const std::optional<std::string> axis = axis_of(strategies[i])) part.axis = *axis;
    if (!part.variables.added)
      open_.left_out.push_back(
          "strategy '" + note.name +
          "' stays as the recipe has it: its note does not say what may be varied (trait tune)");
    for (const std::string& key : part.variables.never)
      open_.left_out.push_back("strategy '" + note.name + "' keeps its " + key +
                               ": with another it computes something else");
    open_.parts.push_back(std::move(part));
  }
}

// Adds other strategies; an axis of that name may be another strategy's.
void ChoiceReader::add_others(PluginHost& plugins, bool rounding) {
  std::vector<SpacePart> others;
  for (const std::string& name : plugins.catalog().names("strategy")) {
    const auto is_it = [&](const SpacePart& part) { return part.variables.plugin == name; };
    if (std::any_of(open_.parts.begin(), open_.parts.end(), is_it)) continue;
    std::string why;
    try {
      const PluginNote& note = plugins.note("strategy", name);
      SpacePart part{variables_of(note, plugins), {}, "", freed_by(note)};
      part.axis = part.variables.own_axis;
      if (!part.variables.added)
        why = "its note does not say what adding it comes to (trait tune)";
      else if (*part.variables.added == Exactness::changes)
        why = "it computes something else";
      else if (*part.variables.added == Exactness::rounds && !rounding)
        why = "it rounds otherwise, which --rounding allows";
      if (why.empty()) others.push_back(std::move(part));
    } catch (const Error& error) {
      why = std::string(first_line(error.what()));
    }
    if (!why.empty()) open_.left_out.push_back(detail::concat("strategy '", name, "' is not added: ", why));
  }
  std::sort(others.begin(), others.end(), comes_before);
  for (SpacePart& part : others) {
    const auto has_axis = [&](const SpacePart& other) {
      return other.brings_axis() && other.axis == part.axis;
    };
    if (part.brings_axis() && std::any_of(open_.parts.begin(), open_.parts.end(), has_axis))
      part.axis = part.variables.plugin;
    open_.parts.push_back(std::move(part));
  }
}

// Keeps those of the recipe's options that it does not set.
void ChoiceReader::keep_options(const Recipe& recipe, bool rounding) {
  for (SpacePart& part : open_.parts) {
    std::erase_if(part.variables.options, [&](const VariedOption& variable) {
      if (variable.exactness == Exactness::rounds && !rounding) {
        open_.left_out.push_back("strategy '" + part.variables.plugin + "' keeps its " + variable.key +
                                 ": others round otherwise, which --rounding allows");
        return true;
      }
      return part.place && is_said(recipe.entry(detail::concat("strategy.", *part.place, ".", variable.key)));
    });
    for (const VariedOption& variable : part.variables.options)
      part.initial[variable.key] =
          part.place ? value_in(recipe, detail::concat("strategy.", *part.place, ".", variable.key), variable)
                     : variable.values.front();
  }
}

void ChoiceReader::read_mesh(const Recipe& recipe) {
  open_.said_mesh = mesh_of(recipe).axes();
  for (std::size_t part = 0; part < open_.parts.size(); ++part)
    if (is_free(open_.parts[part])) open_.free.push_back(part);
}

// Says whether the search chooses its axis' extent: for an axis that several use, the first of them decides.
bool ChoiceReader::is_free(const SpacePart& part) const {
  if (!part.brings_axis() || part.axis.empty()) return false;
  const auto is_said_axis = [&](const Axis& axis) { return axis.name == part.axis; };
  if (std::any_of(open_.said_mesh.begin(), open_.said_mesh.end(), is_said_axis)) return false;
  const auto first = std::find_if(open_.parts.begin(), open_.parts.end(), [&](const SpacePart& other) {
    return other.brings_axis() && other.axis == part.axis;
  });
  return &*first == &part;
}

void ChoiceReader::set_ranks(std::int64_t ranks) {
  const std::int64_t said = Mesh(open_.said_mesh).world();
  open_.ranks = ranks;
  if (ranks % said != 0 || (open_.free.empty() && ranks != said))
    throw_error(ErrorCode::bad_input, "the recipe's mesh has ", said, " ranks, which ", ranks,
                open_.free.empty() ? " are not, and no strategy takes more; change [mesh] or the ranks"
                                   : " is no multiple of; change [mesh] or the ranks");
  open_.rest = ranks / said;
}

// Doubles the batch again and again, and adds the largest.
void ChoiceReader::read_batches(const Recipe& recipe, std::int64_t most) {
  const std::int64_t said = recipe.integer("batch.global");
  if (most > 0 && most < said)
    throw_error(ErrorCode::bad_input, "cannot grow the batch to ", most, " sequences: batch.global is ", said,
                " already; give more, or a recipe with a smaller batch");
  open_.globals = {said};
  while (open_.globals.back() < most) open_.globals.push_back(std::min(most, 2 * open_.globals.back()));
  if (open_.globals.size() > 1)
    open_.left_out.push_back("the optimizer stays as it is, whose rate a larger batch may want otherwise");
}

void ChoiceReader::read_keys(const Recipe& recipe) {
  for (const VariedOption& key : varied_keys())
    if (!is_said(recipe.entry(key.key))) open_.keys.push_back(key);
}

}  // namespace

const std::vector<VariedOption>& varied_keys() {
  static const std::vector<VariedOption> keys = {
      {"batch.order", {"depth_first", "breadth_first"}, Exactness::exact},
      {"batch.interleave", {"1", "2"}, Exactness::exact},
      {"run.bucket_bytes", {"", "0B", "128MiB"}, Exactness::exact}};
  return keys;
}

OpenChoices open_choices(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope,
                         std::int64_t ranks) {
  return ChoiceReader().read(recipe, plugins, scope, ranks);
}

}  // namespace prun
