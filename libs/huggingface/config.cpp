#include "huggingface/config.hpp"

#include <algorithm>
#include <span>

#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- config

namespace fs = std::filesystem;

constexpr JsonLimits limits{std::size_t{16} << 20, 1'000'000, 32};

// ------------------------------------------------------------------- a config.json as Options

// Returns null if the member is absent, or null. A value that should be a table and is none would otherwise
// be ignored.
const JsonValue* find(const JsonValue& root, std::string_view key) {
  const JsonValue* value = &root;
  std::size_t end = 0;
  for (const std::string_view part : split(key, '.')) {
    if (!value->is_object())
      throw_error(ErrorCode::bad_input, in_quotes(key.substr(0, end - 1)), " is not a table");
    value = value->find(part);
    if (!value || value->is_null()) return nullptr;
    end += part.size() + 1;
  }
  return value;
}

// Reports an error here to the user under the plugin's name.
template <class Get>
Status read(void* config, Text key, const char* wanted, Get&& get) {
  return guard([&] {
    const JsonValue* const value = find(*static_cast<const JsonValue*>(config), key.view());
    if (!value) throw_error(ErrorCode::bad_input, in_quotes(key.view()), " is missing");
    try {
      get(*value);
    } catch (const Error& error) {
      throw_error(ErrorCode::bad_input, in_quotes(key.view()), " is not ", wanted, ": ", error.what());
    }
  });
}

struct ConfigCalls {
  static Status integer(void* config, Text key, std::int64_t* value) {
    return read(config, key, "a whole number", [&](const JsonValue& v) { *value = v.as_int64(); });
  }
  static Status number(void* config, Text key, double* value) {
    return read(config, key, "a number", [&](const JsonValue& v) { *value = v.as_double(); });
  }
  static Status flag(void* config, Text key, bool* value) {
    return read(config, key, "true or false", [&](const JsonValue& v) { *value = v.as_bool(); });
  }
  static Status text(void* config, Text key, Text* value) {
    return read(config, key, "a text", [&](const JsonValue& v) { *value = v.as_string(); });
  }
  static Status list_size(void* config, Text key, std::uint64_t* size) {
    return read(config, key, "a list", [&](const JsonValue& v) { *size = v.as_array().size(); });
  }
  static Status list_number(void* config, Text key, std::uint64_t index, double* value) {
    return read(config, key, "a list of numbers",
                [&](const JsonValue& v) { *value = v.as_array().at(index).as_double(); });
  }
  static Status list_text(void* config, Text key, std::uint64_t index, Text* value) {
    return read(config, key, "a list of texts",
                [&](const JsonValue& v) { *value = v.as_array().at(index).as_string(); });
  }
  static Status has(void* config, Text key, bool* given) {
    return guard([&] { *given = find(*static_cast<const JsonValue*>(config), key.view()) != nullptr; });
  }
};

// ------------------------------------------------------------------- what a plugin writes

template <class T>
Status add(void* values, Text key, T value) {
  return guard([&] { static_cast<ConfigValues*>(values)->emplace_back(key.view(), std::move(value)); });
}

// A number of "KEY[]" is one more of a list of numbers.
Status add_number(void* values, Text key, double value) {
  constexpr std::string_view element = "[]";
  if (!key.view().ends_with(element)) return add(values, key, value);
  return guard([&] {
    auto& all = *static_cast<ConfigValues*>(values);
    const std::string_view list = key.view().substr(0, key.view().size() - element.size());
    if (all.empty() || all.back().first != list) all.emplace_back(list, std::vector<double>());
    std::get<std::vector<double>>(all.back().second).push_back(value);
  });
}

Status add_text(void* values, Text key, Text value) { return add(values, key, std::string(value.view())); }

Status add_texts(void* values, Text key, Array<Text> list) {
  std::vector<std::string> texts;
  for (const Text& text : list) texts.emplace_back(text.view());
  return add(values, key, std::move(texts));
}

Status add_integers(void* values, Text key, Array<std::int64_t> list) {
  return add(values, key, std::vector<std::int64_t>(list.begin(), list.end()));
}

Status add_null(void* values, Text key) {
  return guard([&] { static_cast<ConfigValues*>(values)->nulls.emplace_back(key.view()); });
}

void write(JsonWriter& json, const recipe::Value& value) {
  const auto write_one = [&](const auto& one) {
    if constexpr (std::is_same_v<decltype(one), const double&>) {
      json.real(one);
    } else if constexpr (requires { json.value(one); }) {
      json.value(one);
    } else {
      json.begin_array();
      for (const auto& item : one) {
        if constexpr (std::is_same_v<decltype(item), const double&>)
          json.real(item);
        else
          json.value(item);
      }
      json.end_array();
    }
  };
  std::visit(write_one, value);
}

}  // namespace

ConfigFile::ConfigFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) path_ /= config_name;
  *this = ConfigFile(whole_file(path_, limits.bytes), path_);
}

ConfigFile::ConfigFile(std::string_view text, fs::path path)
    : ConfigFile(parse_json(text, path.string(), limits), path) {}

ConfigFile::ConfigFile(JsonValue root, fs::path path) : path_(std::move(path)), root_(std::move(root)) {
  const JsonValue* const kind = root_.is_object() ? root_.find("model_type") : nullptr;
  if (!kind || !kind->is_string())
    throw_error(ErrorCode::bad_input, path_.string(), " has no model_type; it is not a model's config.json");
}

std::string ConfigFile::kind_of_text() const {
  const JsonValue* const held = root_.find("text_config");
  const JsonValue* const kind = held && held->is_object() ? held->find("model_type") : nullptr;
  return kind && kind->is_string() ? kind->as_string() : "";
}

ConfigFile ConfigFile::of_text() const {
  constexpr const char* tied = "tie_word_embeddings";
  std::vector<JsonMember> members = root_.at("text_config").as_object().members();
  if (root_.find(tied)) std::erase_if(members, [&](const JsonMember& member) { return member.name == tied; });
  const JsonObject own(members);
  for (const char* const shared :
       {"bos_token_id", "eos_token_id", "pad_token_id", "quantization_config", tied})
    if (const JsonValue* const value = own.find(shared) ? nullptr : root_.find(shared))
      members.push_back({shared, *value});
  return {JsonValue(JsonObject(std::move(members))), path_};
}

OptionsApi ConfigFile::api() const { return options_table<ConfigCalls>(&root_); }

ConfigWriterApi writer_to(ConfigValues& values) {
  return {sizeof(ConfigWriterApi),
          &values,
          add<std::int64_t>,
          add_number,
          add<bool>,
          add_text,
          add_texts,
          add_integers,
          add_null};
}

bool ConfigValues::has(std::string_view key) const {
  return std::any_of(begin(), end(), [&](const auto& member) { return member.first == key; }) ||
         std::find(nulls.begin(), nulls.end(), key) != nulls.end();
}

std::string config_text(const ConfigValues& values) {
  JsonWriter json;
  json.begin_object();
  std::vector<std::string_view> tables;  // names of the open tables, the outermost first
  const auto open = [&](std::span<const std::string_view> wanted) {
    const auto same = static_cast<std::size_t>(
        std::mismatch(tables.begin(), tables.end(), wanted.begin(), wanted.end()).first - tables.begin());
    for (; tables.size() > same; tables.pop_back()) json.end_object();
    for (const std::string_view name : wanted.subspan(same)) {
      json.name(name).begin_object();
      tables.push_back(name);
    }
  };
  for (const auto& [key, value] : values) {
    const std::vector<std::string_view> names = split(key, '.');
    open(std::span(names).first(names.size() - 1));
    write(json.name(names.back()), value);
  }
  open({});
  for (const std::string& key : values.nulls) json.name(key).null();
  for (const char* const key : {"bos_token_id", "eos_token_id"})
    if (!values.has(key)) json.name(key).null();
  return json.end_object().take() + "\n";
}

// ------------------------------------------------------------------- model config

ConfigValues options_from(const ConfigFile& config, const PluginLibrary& model) {
  const std::string name = describe(model.note());
  if (!trait_lists(model.note(), "reads", config.kind())) {
    const std::string kinds(trait_of(model.note(), "reads"));
    throw_error(ErrorCode::bad_input, config.path().string(), " is of model_type ", in_quotes(config.kind()),
                ", and ", name, kinds.empty() ? " reads no config.json" : " reads " + kinds);
  }
  ConfigValues values;
  try {
    model.read_config(config.api(), writer_to(values));
  } catch (const Error& error) {
    throw_error(error.code(), config.path().string(), ": ", error.what());
  }
  if (!values.nulls.empty())
    throw_error(ErrorCode::bad_input, name, " sets its option ", in_quotes(values.nulls.front()),
                " to null, which is no value of an option");
  return values;
}

ConfigValues written_config(ModelInterface& model, const ModelContext& context) {
  ConfigValues values;
  const ConfigWriterApi api = writer_to(values);
  raise(model.write_config(context, &api));
  return values;
}

}  // namespace prun
