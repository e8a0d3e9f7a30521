#include "recipe/placed.hpp"

#include <algorithm>

#include "base/hub_name.hpp"
#include "base/text.hpp"

namespace prun::recipe {

namespace {

namespace fs = std::filesystem;

bool in_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Says whether a word is meant as a key: many keys are words of the language as well, and one is meant as a
// key only if it is written as one.
bool is_meant(std::string_view before, std::string_view behind) {
  const bool quoted = before.ends_with('\'') && behind.starts_with('\'');
  if (before.empty() || before.ends_with('.') || quoted) return true;
  constexpr std::string_view values[] = {" = ", " is ", " '", " \""};
  return std::any_of(std::begin(values), std::end(values),
                     [&](std::string_view each) { return behind.starts_with(each); });
}

// Returns where a text has a name that is no part of another word.
std::size_t find_name(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    const std::string_view before = text.substr(0, at), behind = text.substr(at + name.size());
    const bool alone =
        (before.empty() || !in_a_name(before.back())) && (behind.empty() || !in_a_name(behind.front()));
    if (alone && is_meant(before, behind)) return at;
  }
  return text.npos;
}

// Removes a start such as "strategy plugin 'zero': ", which names a plugin and no key.
std::string_view without_name(std::string_view message) {
  const std::size_t colon = message.find("': ");
  const bool named = message.substr(0, message.find('\'')).ends_with(" plugin ");
  return named && colon != message.npos ? message.substr(colon + 3) : message;
}

bool is_written(const Location& at) { return at.source && at.source->kind != Source::Kind::ours; }

// Returns, of the keys that a user wrote, the one that the message names first.
const Entry* named_first(const RecipeSection& section, std::string_view message) {
  const Entry* found = nullptr;
  std::size_t first = message.npos;
  for (const Entry& entry : section.entries()) {
    if (!is_written(entry.at) || entry.key == "plugin") continue;
    const std::size_t at = find_name(message, entry.key);
    if (at >= first) continue;
    first = at;
    found = &entry;
  }
  return found;
}

// Returns the key that a user wrote whose path the message has in quotes.
const Entry* named_by_path(const RecipeSection& section, std::string_view message) {
  for (const Entry& entry : section.entries()) {
    const auto* const text = entry.value ? std::get_if<std::string>(&*entry.value) : nullptr;
    if (text && !text->empty() && is_written(entry.at) && entry.key != "plugin" &&
        message.find(in_quotes(*text)) != message.npos)
      return &entry;
  }
  return nullptr;
}

// Says where the path that is missing was searched for, since people expect it beside the recipe.
std::string start_of_paths(const Entry& entry) {
  const auto* const text = entry.value ? std::get_if<std::string>(&*entry.value) : nullptr;
  if (!text || entry.option.type != OptionType::string || text->empty()) return {};
  const fs::path path(*text), beside = fs::path(entry.at.source->name).parent_path() / path;
  std::error_code ignored;
  if (path.is_absolute() || fs::exists(path, ignored)) return {};
  std::string said = "; paths start from the folder that prun is started in, " +
                     printable(fs::current_path(ignored).string(), 200);
  const bool in_file = entry.at.source->kind == Source::Kind::file;
  if (in_file && fs::exists(beside, ignored))
    said += "; " + in_quotes(beside.string()) + " is there";
  else
    said += fetch_advice(path);
  return said;
}

bool is_the_users(const Error& error) { return exit_code(error.code()) == exit_code(ErrorCode::bad_input); }

}  // namespace

void throw_placed(const RecipeSection& section, std::string_view key, const Error& error) {
  const Entry* entry = named_first(section, without_name(error.what()));
  if (!entry && error.code() == ErrorCode::not_found) entry = named_by_path(section, error.what());
  if (!entry) entry = section.find(key);
  const bool at_entry = entry && is_written(entry->at);
  const Location& at = at_entry ? entry->at : section.place();
  if (!is_the_users(error) || !is_written(at)) throw;
  const bool missing = at_entry && error.code() == ErrorCode::not_found;
  const std::string message = error.what() + (missing ? start_of_paths(*entry) : "");
  throw PlacedError(error.code(), render({at, message}));
}

}  // namespace prun::recipe
