#include "assemble/section_options.hpp"

namespace prun {
namespace {

const recipe::Value& value_of(const RecipeSection& section, std::string_view key) {
  const auto& entry = section.entry(key);
  PRUN_CHECK(entry.value, "option '", entry.path, "' is absent");
  return *entry.value;
}
const recipe::Value& value_of(const DefaultSection& section, std::string_view key) {
  return section.value(key);
}

template <class T>
const T& typed(const recipe::Value& value, std::string_view key) {
  const T* const found = std::get_if<T>(&value);
  PRUN_CHECK(found, "option '", key, "' was declared with another type than it is read with");
  return *found;
}

// Calls visit with a list option, whatever its elements.
template <class Visit>
void with_list(const recipe::Value& value, std::string_view key, Visit&& visit) {
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value))
    visit(*integers);
  else if (const auto* numbers = std::get_if<std::vector<double>>(&value))
    visit(*numbers);
  else
    visit(typed<std::vector<std::string>>(value, key));
}

// The table of calls for either kind of section.
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
          *value = static_cast<double>(list.at(index));
        else
          throw_error(ErrorCode::internal, "option '", key.view(), "' holds no numbers");
      });
    });
  }
  static Status list_text(void* section, Text key, std::uint64_t index, Text* value) {
    return guard(
        [&] { *value = Text(typed<std::vector<std::string>>(at(section, key), key.view()).at(index)); });
  }
  static OptionsApi table(const Section& section) {
    return {sizeof(OptionsApi),
            const_cast<Section*>(&section),
            integer,
            number,
            flag,
            text,
            list_size,
            list_number,
            list_text};
  }
};

}  // namespace

const recipe::Value& DefaultSection::value(std::string_view key) const {
  const recipe::Option* const option = schema_.find(key);
  PRUN_CHECK(option, "the schema declares no option '", key, "'");
  if (option->presence != recipe::Presence::has_default)
    throw_error(ErrorCode::bad_input, "option '", key, "' has no default and was not given");
  return option->default_value;
}

std::vector<std::string> DefaultSection::required() const {
  std::vector<std::string> keys;
  for (const recipe::Option& option : schema_.options())
    if (option.presence != recipe::Presence::has_default) keys.push_back(option.key);
  return keys;
}

OptionsApi options_of(const RecipeSection& section) { return Calls<RecipeSection>::table(section); }
OptionsApi options_of(const DefaultSection& section) { return Calls<DefaultSection>::table(section); }

}  // namespace prun
