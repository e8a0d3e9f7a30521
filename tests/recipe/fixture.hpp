// A small world of plugins and a recipe that is right, shared by the recipe tests.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "prun/error.hpp"
#include "recipe/recipe.hpp"

namespace prun::test {

inline const std::map<std::pair<std::string, std::string>, Schema>& plugin_schemas() {
  static const auto make = [](std::string_view text) { return parse_schema(text, "test plugin"); };
  static const std::map<std::pair<std::string, std::string>, Schema> schemas = {
      {{"model", "gpt"}, make(R"(
         layers     | int   | 12    | 1..4096     | Number of transformer blocks
         hidden     | int   | 768   | 1..1048576  | Width of the residual stream
         heads      | int   | 12    | 1..1024     | Attention heads
         vocab      | int   | required | 2..      | Size of the vocabulary
         rope_theta | float | 1e4   | 1..1e9      | Base of the rotary embedding
         tied       | bool  | true  |             | The head shares the embedding's weight
       )")},
      {{"data", "tokens"}, make("path | string | required | | File of tokens")},
      {{"optimizer", "adamw"}, make(R"(
         betas        | floats | [0.9, 0.95] | 0..1 | Decay of the two moments
         weight_decay | float  | 0.0         | 0..  | Decoupled weight decay
       )")},
      {{"optimizer", "sgd"}, make("momentum | float | 0 | 0..1 | Momentum")},
      {{"optimizer", "grabby"}, make("lr | float | 1 | | Takes what is the core's")},
      {{"device", "cpu"}, make("")},
      {{"device", "auto"}, make("")},
      {{"strategy", "data"}, make("axis | string | dp | | Mesh axis")},
      {{"strategy", "zero"}, make(R"(
         axis  | string | dp       |      | Mesh axis
         stage | int    | required | 0..3 | What is sharded
       )")},
      {{"device", "nvme"}, make(R"(
         paths | strings | required |      | Folders
         sizes | ints    | []       | 1..  | Bytes in each
       )")},
      {{"observer", "console"}, make("color | bool | true | | Use colors")},
      {{"comm", "auto"}, make("")},
      {{"comm", "nccl"}, make("")},
      {{"comm", "ucx"}, make("transports | string | all | | What it may use")},
      {{"schedule", "1f1b"}, make("")},
      {{"schedule", "waves"}, make("wave | int | 2 | 1..8 | Microbatches that go forward at once")},
      {{"op", "square"}, make("power | int | required | 1.. | What it is raised to")},
  };
  return schemas;
}

inline PluginCatalog catalog() {
  PluginCatalog catalog;
  catalog.schema = [](std::string_view kind, std::string_view name) -> const Schema* {
    if (name == "broken") throw_error(ErrorCode::bad_input, "its note is damaged; rebuild it");
    const auto found = plugin_schemas().find({std::string(kind), std::string(name)});
    return found == plugin_schemas().end() ? nullptr : &found->second;
  };
  catalog.names = [](std::string_view kind) {
    std::vector<std::string> names;
    for (const auto& [key, schema] : plugin_schemas())
      if (key.first == kind) names.push_back(key.second);
    return names;
  };
  catalog.help = [](std::string_view kind, std::string_view name) {
    return "The " + std::string(name) + " " + std::string(kind);
  };
  return catalog;
}

inline constexpr const char* good_recipe = R"([run]
name = "test"
steps = 100

[model]
plugin = "gpt"
vocab = 256
seq = 64
[data]
plugin = "tokens"
path = "train.bin"

[batch]
global = 8
micro = 2

[optimizer]
plugin = "adamw"
lr = 3e-4

[mesh]
tp = 2
dp = 4
)";

inline Recipe parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  return Recipe::parse(text, "r.toml", sets, catalog());
}

// What parsing complains about; empty when it does not.
inline std::string complaint(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    parse(text, sets);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// The good recipe with one piece of its text replaced.
inline std::string good_with(const std::string& from, const std::string& to) {
  std::string text = good_recipe;
  const std::size_t at = text.find(from);
  PRUN_CHECK(at != std::string::npos, "the good recipe has no '", from, "'");
  return text.replace(at, from.size(), to);
}

}  // namespace prun::test
