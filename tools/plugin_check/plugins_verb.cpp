// Implements prun plugins list | inspect | new | check.
#include <cstdio>

#include "base/json.hpp"
#include "cli/command_table.hpp"
#include "explain/explain.hpp"
#include "plugin_check/conformance.hpp"
#include "plugin_check/kind_checks.hpp"
#include "plugin_check/scaffold.hpp"
#include "plugin_check/tiny_recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

int list(const Arguments& arguments) {
  JsonWriter json;
  json.begin_array();
  for (const PluginCandidate& plugin : list_plugins(plugin_places({}, {}, arguments.plugin_paths))) {
    const std::string version = plugin.note ? plugin.note->version : "",
                      help = plugin.note ? plugin.note->help : "";
    json.begin_object().member("kind", plugin.kind).member("name", plugin.name).member("version", version);
    json.member("state", state_of(plugin)).member("path", plugin.path.string()).end_object();
    const bool all = arguments.has("--all"), refused = !plugin.refusal.empty();
    if (arguments.has("--json") || (!plugin.shadowed_by.empty() && !all)) continue;
    std::printf("%-10s %-14s %-8s %s\n", plugin.kind.c_str(), plugin.name.c_str(), version.c_str(),
                help.c_str());
    if (all || refused)
      std::printf("%26s%s\n%26s%s\n", "", plugin.path.c_str(), "", state_of(plugin).c_str());
    for (const std::string& warning : plugin.warnings) std::printf("%26swarning: %s\n", "", warning.c_str());
  }
  json.end_array();
  if (arguments.has("--json")) std::printf("%s\n", json.take().c_str());
  return 0;
}

// Finds "gpt" or "model/gpt" among all plugins, or takes a path.
std::vector<PluginCandidate> named(const Arguments& arguments, const std::string& word) {
  std::vector<PluginCandidate> found;
  for (PluginCandidate& plugin : list_plugins(plugin_places({}, {}, arguments.plugin_paths)))
    if (plugin.name == word || plugin.kind + "/" + plugin.name == word) found.push_back(std::move(plugin));
  if (found.empty() && (word.find('/') != std::string::npos || word.ends_with(".so")))
    return {examine_plugin(word, "the command line")};
  if (found.empty())
    throw_error(ErrorCode::not_found, "there is no plugin '", word,
                "'; prun plugins list shows what there is");
  return found;
}

void print(const PluginCandidate& plugin) {
  std::printf("%s\n  state    %s\n", plugin.path.c_str(), state_of(plugin).c_str());
  for (const std::string& warning : plugin.warnings) std::printf("  warning  %s\n", warning.c_str());
  if (!plugin.note) return;
  const PluginNote& note = *plugin.note;
  std::printf("  %s %s: %s\n", describe(note).c_str(), note.version.c_str(), note.help.c_str());
  for (const auto& [key, value] : note.traits) std::printf("  %-8s %s\n", key.c_str(), value.c_str());
  std::printf("  sdk      %s, epoch %u, %s, layout %s\n  build    %s\n", note.sdk.c_str(), note.epoch,
              note.abi.c_str(), note.layout.c_str(), note.build_id.c_str());
  for (const std::string& library : note.needed) std::printf("  needs    %s\n", library.c_str());
  for (const std::string& symbol : note.exports) std::printf("  exports  %s\n", symbol.c_str());
  std::printf("\n%s", recipe::reference_table(parse_schema(note.options, describe(note))).c_str());
}

int inspect(const Arguments& arguments, const std::string& word) {
  for (const PluginCandidate& plugin : named(arguments, word)) print(plugin);
  return 0;
}

// Returns a file, or all plugins of a name.
std::vector<std::filesystem::path> paths_of(const Arguments& arguments, const std::string& word) {
  if (word.find('/') != std::string::npos || word.ends_with(".so")) return {word};
  std::vector<std::filesystem::path> paths;
  for (const PluginCandidate& plugin : named(arguments, word)) paths.push_back(plugin.path);
  return paths;
}

int check(const Arguments& arguments, const std::string& word) {
  const std::vector<SearchPlace> places = plugin_places({}, {}, arguments.plugin_paths);
  const auto given = arguments.values.find("--options");
  const std::string options = given == arguments.values.end() ? "" : given->second;
  bool all_conform = true;
  for (const std::filesystem::path& path : paths_of(arguments, word)) {
    const std::vector<ContractCheck> checks = check_plugin(
        path, [&](const PluginNote& note) { return default_options(trial_schema(note, options)); },
        std::chrono::seconds(30), kind_checks(places, options, arguments.path("--recipe")));
    for (const ContractCheck& one : checks) std::printf("%s\n", to_text(one).c_str());
    const std::string left = not_run(checks);
    if (conforms(checks) && !left.empty())
      std::fprintf(stderr, "prun: %s: nothing failed, but not all was tried: not run %s\n", path.c_str(),
                   left.c_str());
    all_conform = all_conform && conforms(checks) && left.empty();
  }
  return all_conform ? 0 : 2;
}

int plugins_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  const std::string& verb = words[0];
  if (verb == "list") return list(arguments);
  if (verb == "inspect") return inspect(arguments, words[1]);
  if (verb == "check") return check(arguments, words[1]);
  const std::filesystem::path folder = words.back();
  for (const std::filesystem::path& file : write_scaffold(words[1], words[2], folder))
    std::printf("wrote %s\n", file.c_str());
  return 0;
}

}  // namespace

std::vector<Command> plugins_verb() {
  return {{"plugins list",
           "",
           "what can be named in a recipe",
           {{"--all", "", "those too that others hide, with their paths"}, json_option},
           plugins_command},
          {"plugins inspect",
           "NAME",
           "versions and options of a plugin, without running it",
           {},
           plugins_command},
          {"plugins new",
           "KIND NAME [FOLDER]",
           "a small project that builds a plugin of any kind, or a tier",
           {},
           plugins_command},
          {"plugins check",
           "PATH",
           "open a plugin in a separate process and test its contract: the ABI, and what its kind promises; "
           "a "
           "file, or a name that prun plugins list shows",
           {{"--options", "TOML",
             "options of its own, as in a recipe: 'layers = 4'; several on lines of their own"},
            {"--recipe", "RECIPE", "of a strategy: try it in this recipe, which names it"}},
           plugins_command}};
}

}  // namespace prun
