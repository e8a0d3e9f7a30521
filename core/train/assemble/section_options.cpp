#include "train/assemble/section_options.hpp"

#include "base/text.hpp"
#include "plugin/options_table.hpp"

namespace prun {
namespace {

// Throws an error that the plugin's author must correct: it reaches the user under the plugin's name.
template <class... Parts>
[[noreturn]] void misread(std::string_view key, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "option ", in_quotes(key), " ", parts...);
}

[[noreturn]] void undeclared(std::string_view key, const std::vector<std::string>& keys) {
  misread(key, "is read by the plugin and not declared by it", did_you_mean(key, keys));
}

// Returns null if the key is optional and absent.
const recipe::Value* find_value(const RecipeSection& section, std::string_view key) {
  if (const recipe::Entry* const entry = section.find(key)) return entry->value ? &*entry->value : nullptr;
  std::vector<std::string> keys;
  for (const recipe::Entry& entry : section.entries()) keys.push_back(entry.key);
  undeclared(key, keys);
}

const recipe::Value* find_value(const DefaultSection& section, std::string_view key) {
  if (const recipe::Option* const option = section.schema().find(key)) {
    if (option->presence == recipe::Presence::required) misread(key, "must be given: it has no default");
    return option->presence == recipe::Presence::has_default ? &option->default_value : nullptr;
  }
  std::vector<std::string> keys;
  for (const recipe::Option& option : section.schema().options()) keys.push_back(option.key);
  undeclared(key, keys);
}

const recipe::Value* find_value(const Recipe& recipe, std::string_view key) {
  const recipe::Entry* const entry = recipe.find(key);
  return entry && entry->value ? &*entry->value : nullptr;
}

template <class Section>
const recipe::Value& value_of(const Section& section, std::string_view key) {
  const recipe::Value* const value = find_value(section, key);
  if (!value) misread(key, "is absent, as its schema allows; the plugin must ask has() first");
  return *value;
}

// The words are in the order of recipe::Value.
constexpr const char* words[] = {"an int",         "a float",          "a bool",           "a text",
                                 "a list of ints", "a list of floats", "a list of strings"};
static_assert(std::size(words) == std::variant_size_v<recipe::Value>);

template <class T>
const T& typed(const recipe::Value& value, std::string_view key) {
  if (const T* const found = std::get_if<T>(&value)) return *found;
  misread(key, "is declared as ", words[value.index()], " and read by the plugin as ",
          words[recipe::Value(T()).index()]);
}

// Calls visit with a list option, whatever its elements; of names, one may stand alone.
template <class Visit>
void with_list(const recipe::Value& value, std::string_view key, Visit&& visit) {
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value))
    visit(*integers);
  else if (const auto* numbers = std::get_if<std::vector<double>>(&value))
    visit(*numbers);
  else if (const auto* name = std::get_if<std::string>(&value))
    visit(std::vector{*name});
  else
    visit(typed<std::vector<std::string>>(value, key));
}

// Returns element `index` of a list of texts, or the single text.
const std::string& text_at(const recipe::Value& value, std::string_view key, std::uint64_t index) {
  const auto* name = std::get_if<std::string>(&value);
  return name && index == 0 ? *name : typed<std::vector<std::string>>(value, key).at(index);
}

// Makes the table of calls for either kind of section.
template <class Section>
struct Calls {
  static const recipe::Value& at(void* section, Text key) {
    return value_of(*static_cast<const Section*>(section), key.view());
  }
  static Status integer(void* section, Text key, std::int64_t* value) {
    return guard([&] { *value = typed<std::int64_t>(at(section, key), key.view()); });
  }
  static Status number(void* section, Text key, double* value) {
    return guard([&] { *value = typed<double>(at(section, key), key.view()); });
  }
  static Status flag(void* section, Text key, bool* value) {
    return guard([&] { *value = typed<bool>(at(section, key), key.view()); });
  }
  static Status text(void* section, Text key, Text* value) {
    return guard([&] { *value = Text(typed<std::string>(at(section, key), key.view())); });
  }
  static Status list_size(void* section, Text key, std::uint64_t* size) {
    return guard(
        [&] { with_list(at(section, key), key.view(), [&](const auto& list) { *size = list.size(); }); });
  }
  static Status list_number(void* section, Text key, std::uint64_t index, double* value) {
    return guard([&] {
      with_list(at(section, key), key.view(), [&](const auto& list) {
        if constexpr (requires { static_cast<double>(list.at(index)); })
          *value = list.at(index);
        else
          misread(key.view(), "is declared as a list of strings and read by the plugin as one of numbers");
      });
    });
  }
  static Status list_text(void* section, Text key, std::uint64_t index, Text* value) {
    return guard([&] { *value = Text(text_at(at(section, key), key.view(), index)); });
  }
  static Status has(void* section, Text key, bool* given) {
    return guard([&] { *given = find_value(*static_cast<const Section*>(section), key.view()) != nullptr; });
  }
};

}  // namespace

std::vector<std::string> DefaultSection::required() const {
  std::vector<std::string> keys;
  for (const recipe::Option& option : schema_.options())
    if (option.presence == recipe::Presence::required) keys.push_back(option.key);
  return keys;
}

OptionsApi options_of(const RecipeSection& section) { return options_table<Calls<RecipeSection>>(&section); }
OptionsApi options_of(const Recipe& recipe) { return options_table<Calls<Recipe>>(&recipe); }
OptionsApi options_of(const DefaultSection& section) {
  return options_table<Calls<DefaultSection>>(&section);
}

}  // namespace prun
