#include "search/variables.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

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

}  // namespace prun
