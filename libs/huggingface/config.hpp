// Holds a config.json as model plugins read and write it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "plugin/loader.hpp"
#include "prun/foreign.hpp"
#include "recipe/value.hpp"

namespace prun {

// ------------------------------------------------------------------- config

inline constexpr const char* config_name = "config.json";

class ConfigFile {
 public:
  // Reads the file, or the one in a folder. Throws not_found or bad_input, naming it.
  explicit ConfigFile(std::filesystem::path path);
  ConfigFile(std::string_view text, std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  // Returns its model_type.
  const std::string& kind() const { return root_.at("model_type").as_string(); }
  // Returns that of its text_config, which models of pictures and texts have, or empty.
  std::string kind_of_text() const;
  // Returns the text_config as the config.json of the model of texts alone. What the whole states of tokens
  // and quantisation counts where the text_config says nothing, and what it states of ties counts always, as
  // in transformers.
  ConfigFile of_text() const;
  // Returns the members as plugins read them; they live as long as this.
  OptionsApi api() const;

 private:
  ConfigFile(JsonValue root, std::filesystem::path path);

  std::filesystem::path path_;
  JsonValue root_;
};

// Holds what a model states, by key: its options, or members of a config.json.
struct ConfigValues : std::vector<std::pair<std::string, recipe::Value>> {
  std::vector<std::string> nulls;  // members that are null

  bool has(std::string_view key) const;
};

// Returns a writer that adds what a plugin writes.
ConfigWriterApi writer_to(ConfigValues& values);

// Writes a config.json: "rope_scaling.factor" becomes a member of a member. No tokens begin and end a text if
// the values have none.
std::string config_text(const ConfigValues& values);

// ------------------------------------------------------------------- model config
// Converts a config.json to a model plugin's options, and a model's options to a config.json.

// Returns the options of a plugin that reads files of this kind. Throws bad_input for what the model does not
// compute.
ConfigValues options_from(const ConfigFile& config, const PluginLibrary& model);

// Returns the config that the model writes; `context` is that of build().
ConfigValues written_config(ModelInterface& model, const ModelContext& context);

}  // namespace prun
