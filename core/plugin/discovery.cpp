// Builds the list of search places, scans them, and explains a plugin that was not found.
#include "plugin/discovery.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>
#include <tuple>

#include "base/text.hpp"
#include "plugin/loader.hpp"
#include "plugin/note.hpp"
#include "plugin/traits.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view file_prefix = "libprun_";
constexpr std::string_view file_suffix = ".so";

std::string environment(const char* variable) {
  const char* value = ::secure_getenv(variable);
  return value ? value : "";
}

fs::path epoch_folder() { return fs::path("prun") / "plugins" / std::to_string(plugin_epoch); }

// Returns an empty path when neither variable holds an absolute path.
fs::path user_folder() {
  const fs::path data = environment("XDG_DATA_HOME");
  if (data.is_absolute()) return data / epoch_folder();
  const fs::path home = environment("HOME");
  return home.is_absolute() ? home / ".local" / "share" / epoch_folder() : fs::path();
}

// Drops a folder that was named before, in any spelling.
class PlaceList {
 public:
  void add(const fs::path& folder, std::string origin) {
    std::error_code ignored;  // a folder that does not exist keeps its spelling
    const fs::path real = fs::weakly_canonical(folder, ignored);
    if (seen_.insert(real.empty() ? folder : real).second)
      places_.push_back({folder.lexically_normal(), std::move(origin)});
  }
  std::vector<SearchPlace> take() { return std::move(places_); }

 private:
  std::set<fs::path> seen_;
  std::vector<SearchPlace> places_;
};

struct FileWords {
  std::string kind, name;
};

// Splits "libprun_model_gpt.so" into model and gpt. Kinds have no underscore, names may.
std::optional<FileWords> words_of(const std::string& file) {
  std::string_view text = file;
  if (!text.starts_with(file_prefix) || !text.ends_with(file_suffix)) return std::nullopt;
  text = text.substr(file_prefix.size(), text.size() - file_prefix.size() - file_suffix.size());
  const std::size_t split = text.find('_');
  if (split == std::string_view::npos) return std::nullopt;
  FileWords words{std::string(text.substr(0, split)), std::string(text.substr(split + 1))};
  if (!is_plugin_word(words.kind) || !is_plugin_word(words.name)) return std::nullopt;
  return words;
}

bool is_known_kind(std::string_view kind) {
  const auto kinds = plugin_kinds();
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::string kind_list() {
  const std::vector<std::string> kinds(plugin_kinds().begin(), plugin_kinds().end());
  return join(kinds, ", ");
}

std::string name_problem(const PluginCandidate& candidate, const PluginNote& note) {
  const std::string file = plugin_file_name(note.kind, note.name);
  if (candidate.path.filename() != file)
    return "it holds the " + describe(note) + ", so its file must be called " + file;
  if (!is_known_kind(note.kind))
    return "there is no plugin kind '" + note.kind + "' (there are " + kind_list() + ")";
  return "";
}

// Fills note, warnings and refusal.
void examine(PluginCandidate& candidate) {
  try {
    TrustedFile file = open_trusted(candidate.path);
    candidate.warnings = std::move(file.warnings);
    candidate.note = read_note(file.descriptor.get(), candidate.path.string());
    candidate.refusal = name_problem(candidate, *candidate.note);
    if (candidate.refusal.empty()) candidate.refusal = incompatibility(*candidate.note);
    if (candidate.refusal.empty()) candidate.refusal = traits_problem(*candidate.note);
  } catch (const Error& error) {
    candidate.refusal = error.what();
  }
}

// Returns the plugin files of one folder, unexamined, in order of their names. The list is empty when it
// cannot be read.
std::vector<PluginCandidate> scan(const SearchPlace& place) {
  std::vector<PluginCandidate> found;
  std::error_code error;
  for (fs::directory_iterator at(place.folder, error), end; !error && at != end; at.increment(error)) {
    const auto words = words_of(at->path().filename().string());
    if (words) found.push_back({at->path(), place.origin, words->kind, words->name, {}, {}, {}, {}});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return found;
}

bool exists_here(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found && !error;
}

// Returns the files of that kind and name, unexamined, in search order.
std::vector<PluginCandidate> candidates_of(std::span<const SearchPlace> places, std::string_view kind,
                                           std::string_view name) {
  std::vector<PluginCandidate> found;
  for (const SearchPlace& place : places) {
    const fs::path path = place.folder / plugin_file_name(kind, name);
    if (!exists_here(path)) continue;
    found.push_back({path, place.origin, std::string(kind), std::string(name), {}, {}, {}, {}});
    if (found.size() > 1) found.back().shadowed_by = found.front().path;
  }
  return found;
}

std::string describe_place(const SearchPlace& place) {
  std::error_code error;
  const fs::file_status status = fs::status(place.folder, error);
  std::string note;
  if (status.type() == fs::file_type::not_found)
    note = ", which does not exist";
  else if (error)
    note = ", which cannot be read: " + error.message();
  else if (!fs::is_directory(status))
    note = ", which is not a folder";
  return "\n  looked in " + place.folder.string() + " (" + place.origin + note + ")";
}

// Names the plugin that states this name as an alias of its own.
std::string called_elsewhere(std::span<const SearchPlace> places, std::string_view kind,
                             std::string_view name) {
  for (const PluginNote& note : usable_notes(places, kind))
    if (trait_lists(note, "also", name)) return detail::concat("; it is called '", note.name, "' here");
  return "";
}

// Returns "; did you mean 'gpt'?", "; the plugin of that name is of kind 'optimizer'", or a list of known
// names
std::string hint(std::span<const SearchPlace> places, std::string_view kind, std::string_view name) {
  if (const std::string said = called_elsewhere(places, kind, name); !said.empty()) return said;
  const std::string near = did_you_mean(name, plugin_names(places, kind));
  if (!near.empty()) return near;
  for (const std::string_view other : plugin_kinds())
    if (other != kind && !candidates_of(places, other, name).empty())
      return detail::concat("; the plugin of that name is of kind '", other, "'");
  const std::vector<std::string> known = plugin_names(places, kind);
  return known.empty() ? "" : "; there are " + join(known, ", ");
}

[[noreturn]] void not_found(std::span<const SearchPlace> places, std::string_view kind,
                            std::string_view name) {
  std::string message =
      detail::concat("there is no ", kind, " plugin '", name, "'", hint(places, kind, name));
  if (called_elsewhere(places, kind, name).empty())
    for (const SearchPlace& place : places) message += describe_place(place);
  throw_error(ErrorCode::not_found, message);
}

[[noreturn]] void refused(std::span<const SearchPlace> places, std::vector<PluginCandidate>& candidates) {
  const PluginCandidate& first = candidates.front();
  std::string message = detail::concat("the ", first.kind, " plugin '", first.name, "' cannot be used");
  for (PluginCandidate& candidate : candidates) {
    if (&candidate != &first) examine(candidate);
    message +=
        "\n  " + candidate.path.string() + ": " +
        (candidate.refusal.empty() ? "usable, but " + first.path.string() + " comes first; move one away"
                                   : "refused: " + candidate.refusal);
  }
  for (const SearchPlace& place : places) message += describe_place(place);
  throw_error(ErrorCode::bad_input, message);
}

}  // namespace

std::string plugin_file_name(std::string_view kind, std::string_view name) {
  return detail::concat(file_prefix, kind, "_", name, file_suffix);
}

std::vector<SearchPlace> search_places(const SearchRequest& request) {
  PRUN_CHECK(request.executable_folder.is_absolute(), "the executable's folder must be an absolute path");
  PRUN_CHECK(request.recipe_paths.empty() || request.recipe_folder.is_absolute(),
             "the recipe's folder must be an absolute path");
  PlaceList places;
  for (const fs::path& path : request.command_paths)
    if (!path.empty()) places.add(fs::absolute(path), "--plugin-path");
  const std::string variable = environment("PRUN_PLUGIN_PATH");
  for (const std::string_view entry : split(variable, ':'))
    if (fs::path(entry).is_absolute()) places.add(entry, "PRUN_PLUGIN_PATH");
  for (const fs::path& path : request.recipe_paths)
    if (!path.empty()) places.add(request.recipe_folder / path, "[plugins] path of the recipe");
  if (const fs::path folder = user_folder(); !folder.empty()) places.add(folder, "the user's plugins");
  places.add(request.executable_folder / ".." / "lib" / epoch_folder(), "prun's own plugins");
  return places.take();
}

std::string state_of(const PluginCandidate& candidate) {
  if (!candidate.shadowed_by.empty()) return "shadowed by " + candidate.shadowed_by.string();
  return candidate.refusal.empty() ? "usable" : "refused: " + candidate.refusal;
}

std::vector<PluginCandidate> list_plugins(std::span<const SearchPlace> places) {
  std::vector<PluginCandidate> all;
  for (const SearchPlace& place : places)
    for (PluginCandidate& candidate : scan(place)) all.push_back(std::move(candidate));
  const auto words = [](const PluginCandidate& c) { return std::tie(c.kind, c.name); };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return words(a) < words(b); });
  const PluginCandidate* first = nullptr;
  for (PluginCandidate& candidate : all) {
    examine(candidate);
    if (first && words(*first) == words(candidate))
      candidate.shadowed_by = first->path;
    else
      first = &candidate;
  }
  return all;
}

std::vector<std::string> plugin_names(std::span<const SearchPlace> places, std::string_view kind) {
  std::set<std::string> names;
  for (const SearchPlace& place : places)
    for (const PluginCandidate& candidate : scan(place))
      if (candidate.kind == kind) names.insert(candidate.name);
  return {names.begin(), names.end()};
}

std::vector<PluginNote> usable_notes(std::span<const SearchPlace> places, std::string_view kind) {
  std::vector<PluginNote> notes;
  for (const std::string& name : plugin_names(places, kind)) {
    std::vector<PluginCandidate> candidates = candidates_of(places, kind, name);
    if (candidates.empty()) continue;
    examine(candidates.front());
    if (candidates.front().usable()) notes.push_back(std::move(*candidates.front().note));
  }
  return notes;
}

PluginCandidate find_plugin(std::span<const SearchPlace> places, std::string_view kind,
                            std::string_view name) {
  if (!is_known_kind(kind))
    throw_error(ErrorCode::bad_input, "there is no plugin kind '", printable(kind, 64), "' (there are ",
                kind_list(), ")");
  if (!is_plugin_word(name))
    throw_error(ErrorCode::bad_input, "'", printable(name, 64), "' cannot be the name of a ", kind,
                " plugin: names have 1 to 64 of a-z, 0-9, '-' and '_'", hint(places, kind, name));
  std::vector<PluginCandidate> candidates = candidates_of(places, kind, name);
  if (candidates.empty()) not_found(places, kind, name);
  examine(candidates.front());
  if (!candidates.front().refusal.empty()) refused(places, candidates);
  return std::move(candidates.front());
}

PluginCandidate examine_plugin(const fs::path& path, std::string_view origin) {
  PluginCandidate candidate;
  candidate.path = fs::absolute(path).lexically_normal();
  candidate.origin = origin;
  if (const auto words = words_of(path.filename().string())) {
    candidate.kind = words->kind;
    candidate.name = words->name;
  }
  examine(candidate);
  return candidate;
}

}  // namespace prun
