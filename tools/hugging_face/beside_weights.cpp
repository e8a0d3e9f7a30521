#include "hugging_face/beside_weights.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/durable_file.hpp"
#include "base/whole_file.hpp"
#include "plugin/traits.hpp"
#include "recipe/typed_value.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_bytes = std::size_t{1} << 30;
constexpr std::array file_names = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "chat_template.jinja",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "merges.txt",
                                   "vocab.txt",
                                   "generation_config.json"};

std::string text_setting(const Settings& run, std::string_view key) {
  const auto found = std::find_if(run.begin(), run.end(), [&](const auto& one) { return one.first == key; });
  if (found == run.end()) return {};
  const auto value = recipe::parse_value(recipe::OptionType::string, found->second);
  return value ? std::get<std::string>(*value) : std::string();
}

// Returns the tokenizer that the data plugin's trait names; nothing where that plugin is not here any more.
std::string tokenizer_of_data(const Settings& run, PluginHost& plugins) {
  const std::string plugin = text_setting(run, "data.plugin");
  if (plugin.empty()) return {};
  try {
    const std::string key(trait_of(plugins.note("data", plugin), "tokenizer"));
    return key.empty() ? std::string() : text_setting(run, "data." + key);
  } catch (const Error&) {
    return {};
  }
}

// The first of these folders that has a file gives it.
std::vector<fs::path> folders_of(const Settings& run, PluginHost& plugins) {
  std::vector<fs::path> folders;
  if (const fs::path tokenizer = tokenizer_of_data(run, plugins); !tokenizer.empty())
    folders.push_back(fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path());
  if (const fs::path init = text_setting(run, "model.init"); !init.empty()) folders.push_back(init);
  return folders;
}

}  // namespace

std::string copy_beside_weights(const Settings& run, PluginHost& plugins, const fs::path& to) {
  const std::vector<fs::path> folders = folders_of(run, plugins);
  std::string copied, searched;
  for (const fs::path& folder : folders)
    if (searched.find(folder.string()) == std::string::npos)
      searched += (searched.empty() ? "" : ", ") + folder.string();
  for (const char* name : file_names)
    for (const fs::path& folder : folders) {
      if (!fs::is_regular_file(folder / name)) continue;
      replace_text_file(to / name, whole_file(folder / name, most_bytes));
      copied += (copied.empty() ? "" : ", ") + std::string(name);
      break;
    }
  if (folders.empty()) return {};
  return copied.empty() ? "no tokenizer beside it: there is none in " + searched + "\n"
                        : "copied " + copied + " of " + searched + "\n";
}

}  // namespace prun
