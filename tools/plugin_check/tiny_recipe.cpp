#include "plugin_check/tiny_recipe.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/random.hpp"
#include "base/text.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/schema.hpp"
#include "recipe/toml_reader.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- tiny recipe

namespace fs = std::filesystem;

void write_text(const fs::path& path) {
  const RandomStream draw(1, stream_id("text"));
  std::ofstream out(path);
  for (std::uint64_t i = 0; i < 4096; ++i) out << static_cast<char>('a' + draw.bits32(i) % 26);
}

}  // namespace

TrialFolder::TrialFolder() {
  std::string pattern = (fs::temp_directory_path() / "prun-trial-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw_error(ErrorCode::storage, "cannot make a folder ", pattern, ": ", std::strerror(errno));
  path_ = pattern;
}

TrialFolder::~TrialFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Recipe tiny_recipe(const BaseModel& model, const std::string& more, const fs::path& folder,
                   PluginHost& plugins) {
  const fs::path text = folder / "text.txt";
  if (!fs::exists(text)) write_text(text);
  const std::string sections = "[model]\nplugin = \"" + std::string(model.plugin) +
                               "\"\nlayers = 2\nhidden = 16\nheads = 4\nvocab = 256\nseq = 16\n" +
                               model.options + "[data]\nplugin = \"" + bytes_data + "\"\npath = \"" +
                               text.string() + "\"\n";
  return Recipe::parse(around_a_trial + sections + more, "the recipe of a trial", {}, plugins.catalog());
}

CpuKernels::CpuKernels(const std::vector<SearchPlace>& places) {
  const std::vector<std::string> devices = plugin_names(places, "device");
  if (std::find(devices.begin(), devices.end(), host_device) == devices.end()) return;
  PluginHost plugins(places);
  const DefaultSection defaults(
      parse_schema(plugins.note("device", host_device).options, "the device of a trial"));
  device_ = plugins.create<DeviceInterface>("device", host_device, options_of(defaults));
}

KernelsOf CpuKernels::kernels() const {
  if (!device_) return [](std::string_view) { return nullptr; };
  return kernels_of(*device_);
}

namespace {

// ------------------------------------------------------------------- trial options

using recipe::Node;

constexpr std::pair<const char*, std::int64_t> tiny_model[] = {
    {"layers", 2}, {"hidden", 16}, {"heads", 4}, {"kv_heads", 2}, {"ffn", 32}, {"vocab", 32}};

class Given {
 public:
  Given(const Schema& schema, const std::string& plugin) : schema_(schema), plugin_(plugin) {}

  Schema take(const std::string& text) {
    const auto source = std::make_shared<const recipe::Source>(
        recipe::Source{"--options", text, 0, recipe::Source::Kind::file});
    const std::optional<Node> root = recipe::read_toml(source, diagnostics_);
    if (root) take(*root, "");
    diagnostics_.throw_if_any();
    return schema_;
  }

 private:
  void take(const Node& table, const std::string& prefix) {
    for (const recipe::Member& member : table.members) {
      const std::string key = prefix + member.key;
      const recipe::Option* const option = schema_.find(key);
      if (!option && member.value.kind == Node::Kind::table) {
        take(member.value, key + ".");
      } else if (!option) {
        diagnostics_.add(member.at, plugin_ + " has no option " + in_quotes(key) + did_you_mean(key, keys()));
      } else if (auto value = recipe::convert(member.value, *option, in_quotes(key) + " of " + plugin_,
                                              diagnostics_)) {
        schema_ = with_default(schema_, key, std::move(*value));
      }
    }
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> keys;
    for (const recipe::Option& option : schema_.options()) keys.push_back(option.key);
    return keys;
  }

  Schema schema_;
  const std::string plugin_;
  recipe::Diagnostics diagnostics_;
};

Schema schema_of(const PluginNote& note) { return parse_schema(note.options, describe(note)); }

Schema with_given(const PluginNote& note, const Schema& schema, const std::string& given) {
  return Given(schema, describe(note)).take(given);
}

// Makes required options tiny, and larger defaults too where `defaults` says so.
Schema made_tiny(Schema schema, bool defaults) {
  for (const auto& [key, value] : tiny_model) {
    const recipe::Option* const option = schema.find(key);
    if (!option || option->type != recipe::OptionType::integer) continue;
    const bool required = option->presence == recipe::Presence::required;
    const auto* const before = std::get_if<std::int64_t>(&option->default_value);
    if (required || (defaults && before && *before > value))
      schema = with_default(schema, key, recipe::Value(value));
  }
  return schema;
}

}  // namespace

Schema with_default(const Schema& schema, const std::string& key, recipe::Value value) {
  std::vector<recipe::Option> options(schema.options().begin(), schema.options().end());
  for (recipe::Option& option : options) {
    if (option.key != key) continue;
    option.presence = recipe::Presence::has_default;
    option.default_value = std::move(value);
  }
  return Schema(std::move(options));
}

Schema trial_schema(const PluginNote& note, const std::string& given) {
  return with_given(note, note.kind == "model" ? made_tiny(schema_of(note), false) : schema_of(note), given);
}

Schema tiny_schema(const PluginNote& note, const std::string& given) {
  return with_given(note, made_tiny(schema_of(note), true), given);
}

DefaultOptions default_options(const Schema& schema) {
  auto section = std::make_shared<DefaultSection>(schema);
  return {options_of(*section), section, section->required()};
}

}  // namespace prun
