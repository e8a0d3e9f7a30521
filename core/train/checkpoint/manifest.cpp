#include "train/checkpoint/manifest.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "base/crc32c.hpp"
#include "base/durable_file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "recipe/recipe.hpp"
#include "recipe/toml_writer.hpp"

namespace prun {

// ------------------------------------------------------------------- settings

Settings settings_of(const Recipe& recipe) {
  Settings settings;
  for (const RecipeSection& section : recipe.all_sections())
    for (const auto& entry : section.entries())
      if (entry.value) settings.emplace_back(entry.path, recipe::to_toml(*entry.value));
  return settings;
}

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns where the name of a key's table ends, if there may be several of it: "strategy" of
// "strategy.0.plugin".
std::size_t end_of_list(const std::string& key) {
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
    const std::size_t next = key.find('.', dot + 1);
    if (next != std::string::npos && is_number(std::string_view(key).substr(dot + 1, next - dot - 1)))
      return dot;
  }
  return std::string::npos;
}

struct Table {
  std::string place, list;  // texts such as "strategy.0" and "strategy"
  std::vector<std::pair<std::string, recipe::Value>> values;
};

void write(recipe::TomlWriter& out, const Table& table) {
  for (const auto& [key, value] : table.values) out.value(key, value);
}

}  // namespace

// Writes settings as TOML: "strategy.0.plugin" is the key `plugin` of the first [[strategy]],
// "optimizer.schedule.kind" the key `schedule.kind` of [optimizer].
std::string to_toml(const Settings& settings) {
  std::vector<Table> tables, items;  // items of lists come behind the others
  for (const auto& [key, text] : settings) {
    const std::optional<recipe::Value> value = recipe::value_of_toml(text);
    const std::size_t list = end_of_list(key);
    const std::size_t name = key.find('.', list == std::string::npos ? 0 : list + 1);
    if (!value || name == std::string::npos)
      throw_error(ErrorCode::bad_input, "setting ", in_quotes(key), " is ", in_quotes(text),
                  ", which no recipe says");
    const std::string place = key.substr(0, name);
    std::vector<Table>& all = list == std::string::npos ? tables : items;
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Table& known) { return known.place == place; });
    if (found == all.end()) found = all.insert(found, {place, key.substr(0, list), {}});
    found->values.emplace_back(key.substr(name + 1), *value);
  }
  recipe::TomlWriter out;
  for (const Table& table : tables) write(out.table(table.place), table);
  for (const Table& item : items) write(out.item(item.list), item);
  return out.text();
}

bool belongs_to_a_place(std::string_view key) {
  for (const char* own : {"name", "out", "save_memory", "save_rate", "save_at_end", "keep", "keep_every",
                          "fresh", "hang_limit", "restarts", "log"})
    if (key == std::string("run.") + own) return true;
  if (key == "model.config" || key == "model.init") return true;
  const std::string_view section = key.substr(0, key.find('.'));
  return section == "device" || section == "observer" || section == "plugins";
}

std::vector<Change> changes(const Settings& before, const Settings& now) {
  std::map<std::string, Change> all;
  for (const auto& [key, value] : before) all[key] = {key, value, "nothing"};
  for (const auto& [key, value] : now) {
    Change& change = all.emplace(key, Change{key, "nothing", ""}).first->second;
    change.now = value;
  }
  std::vector<Change> list;
  for (auto& [key, change] : all)
    if (change.before != change.now) list.push_back(std::move(change));
  return list;
}

namespace {

// ------------------------------------------------------------------- manifest

namespace fs = std::filesystem;
constexpr const char* file_name = "run.id";
constexpr std::string_view parent_mark = " from ";
constexpr std::size_t id_digits = 32;

std::string new_id() {
  std::array<unsigned char, id_digits / 2> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw_storage_error("read", "/dev/urandom", errno);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string id;
  for (const unsigned char byte : bytes) {
    id += digits[byte >> 4];
    id += digits[byte & 15];
  }
  return id;
}

void write_owner(const fs::path& run_folder, const RunIdentity& run) {
  const std::string parent = run.parent.empty() ? "" : std::string(parent_mark) + run.parent;
  put_text_file(run_folder / file_name, sealed_line(run.id + parent));
}

bool holds_checkpoints(const fs::path& run_folder) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(run_folder / "latest", ignored));
}

bool lies_in(const fs::path& run_folder, const Origin& origin) {
  std::error_code ignored;
  return fs::equivalent(origin.run_folder, run_folder, ignored);
}

RunIdentity successor(const std::optional<Origin>& origin) {
  RunIdentity run = fresh_run();
  if (origin) run.parent = detail::concat(origin->run.id, " at step ", origin->step);
  return run;
}

}  // namespace

RunIdentity fresh_run() { return {new_id(), {}}; }

bool is_run_id(const std::string& text) {
  return text.size() == id_digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::optional<RunIdentity> owner_of(const fs::path& run_folder) {
  const fs::path path = run_folder / file_name;
  const std::optional<std::string> line = read_short_file(path);
  if (!line) return std::nullopt;
  const std::string text = unsealed(*line).value_or("");
  RunIdentity run{text.substr(0, id_digits), {}};
  if (text.size() > id_digits + parent_mark.size()) run.parent = text.substr(id_digits + parent_mark.size());
  if (!is_run_id(run.id))
    throw_error(ErrorCode::bad_input, "'", path.string(),
                "', which says whose folder it is, is damaged; remove it, and a run that goes on from here "
                "writes it anew");
  return run;
}

RunIdentity claim_folder(const fs::path& run_folder, const std::optional<Origin>& origin) {
  const std::optional<RunIdentity> owner = owner_of(run_folder);
  if (owner && origin && owner->id == origin->run.id) return *owner;
  const bool lost = !owner && origin && lies_in(run_folder, *origin);
  if (!lost && holds_checkpoints(run_folder))
    throw_error(ErrorCode::bad_input, run_folder.string(), " holds the checkpoints of another run",
                owner ? " (" + owner->id + ")" : "", "; go on with it by run.resume = \"",
                run_folder.string(), "\", or give run.out another folder");
  RunIdentity run = lost ? origin->run : successor(origin);
  write_owner(run_folder, run);
  return run;
}

void keep_claim(const fs::path& run_folder, const RunIdentity& run) {
  const std::optional<RunIdentity> owner = owner_of(run_folder);
  if (!owner) return write_owner(run_folder, run);
  if (owner->id != run.id)
    throw_error(ErrorCode::bad_input, run_folder.string(), " belongs to another run by now (", owner->id,
                "); nothing was saved there");
}

namespace {

namespace fs = std::filesystem;
constexpr std::int64_t format_version = 3;
// A double holds so much exactly, as steps are staged; sums of such numbers do not overflow.
constexpr std::int64_t most_counted = std::int64_t{1} << 53;
constexpr std::string_view seal_start = "\"crc32c\":\"", seal_end = "\"}\n";
constexpr std::size_t checksum_digits = 8;

std::string seal_of(std::string_view text) { return crc32c_text(crc32c(std::as_bytes(std::span(text)))); }

std::string seal(std::string open) {
  open += "," + std::string(seal_start);
  return open + seal_of(open) + std::string(seal_end);
}

// Says whether every byte is as it was written.
bool is_sealed(std::string_view text) {
  if (text.size() < seal_start.size() + checksum_digits + seal_end.size() || !text.ends_with(seal_end))
    return false;
  const std::string_view before = text.substr(0, text.size() - seal_end.size() - checksum_digits);
  return before.ends_with(seal_start) && text.substr(before.size(), checksum_digits) == seal_of(before);
}

std::string text_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw_error(ErrorCode::bad_input, path.string(),
                error || !fs::exists(path, error) ? " is not there: the checkpoint is not whole"
                                                  : ": it is not a file");
  return whole_file(path, JsonLimits{}.bytes);
}

std::int64_t count_at(const JsonValue& json, std::string_view name) {
  const std::int64_t count = json.at(name).as_int64();
  if (count < 0) throw_error(ErrorCode::bad_input, "'", name, "' is negative");
  if (count > most_counted)
    throw_error(ErrorCode::bad_input, "'", name, "' is ", count, ", more than any run comes to");
  return count;
}

// Older manifests have no choices.
KernelChoices choices_in(const JsonValue& json) {
  KernelChoices choices;
  const JsonValue* const found = json.as_object().find("choices");
  if (!found) return choices;
  for (const JsonValue& text : found->at("texts").as_array()) choices.texts.push_back(text.as_string());
  for (const JsonValue& number : found->at("of").as_array()) {
    choices.of.push_back(number.as_uint64());
    if (choices.of.back() >= choices.texts.size())
      throw_error(ErrorCode::bad_input, "'choices' names text ", choices.of.back(), " of ",
                  choices.texts.size());
  }
  return choices;
}

// A manifest has no scale for a run that scales no loss.
LossScale loss_scale_in(const JsonValue& json) {
  const JsonValue* const found = json.find("loss_scale");
  if (!found) return {};
  const LossScale scale{found->at("scale").as_double(), count_at(*found, "clean"),
                        count_at(*found, "spared")};
  int exponent = 0;
  if (std::frexp(scale.scale, &exponent) != 0.5)
    throw_error(ErrorCode::bad_input, "its loss scale is ", scale.scale, ", no power of two");
  return scale;
}

Manifest manifest_of(const JsonValue& json) {
  if (const std::int64_t format = count_at(json, "format"); format != format_version)
    throw_error(ErrorCode::bad_input, "it is of format ", format, ", this prun reads format ", format_version,
                "; go on with the prun that saved it");
  Manifest manifest;
  manifest.run = {json.at("run").as_string(), json.at("parent").as_string()};
  if (!is_run_id(manifest.run.id))
    throw_error(ErrorCode::bad_input, "'run' is ", in_quotes(manifest.run.id), ", not the name of a run");
  manifest.save = count_at(json, "save");
  manifest.progress = {count_at(json, "step"), count_at(json, "updates"), count_at(json, "samples"),
                       loss_scale_in(json)};
  if (manifest.progress.updates > manifest.progress.step)
    throw_error(ErrorCode::bad_input, "it counts ", manifest.progress.updates, " updates in ",
                manifest.progress.step, " steps");
  manifest.mesh = json.at("mesh").as_string();
  for (const JsonValue& text : json.at("arithmetic").as_array())
    manifest.arithmetic.push_back(text.as_string());
  manifest.choices = choices_in(json);
  recipe::StoredSettings settings;
  for (const JsonMember& member : json.at("recipe").as_object().members())
    settings.emplace_back(member.name, member.value.as_string());
  manifest.recipe = recipe::stored_settings(settings);
  manifest.plugins = JsonWriter().value(json.at("plugins")).take();
  for (const JsonValue& file : json.at("files").as_array()) {
    if (file.at("name").as_string() != rank_file_name(manifest.files.size()))
      throw_error(ErrorCode::bad_input, "file ", manifest.files.size(), " is called ",
                  in_quotes(file.at("name").as_string()));
    manifest.files.push_back({file.at("bytes").as_uint64(), file.at("checksum").as_string()});
  }
  if (const JsonValue* const base = json.find("base")) manifest.base = base->as_string();
  if (const JsonValue* const sets = json.find("sets"))
    for (const JsonValue& set : sets->as_array())
      manifest.sets.push_back(
          {set.at("name").as_string(), count_at(set, "samples"), count_at(set, "tokens")});
  return manifest;
}

}  // namespace

void KernelChoices::add(const std::string& text) {
  const auto known = std::find(texts.begin(), texts.end(), text);
  of.push_back(static_cast<std::size_t>(known - texts.begin()));
  if (known == texts.end()) texts.push_back(text);
}

std::string KernelChoices::for_rank(std::size_t rank) const {
  if (texts.empty()) return {};
  const std::size_t own = of.empty() ? 0 : of[rank % of.size()];
  std::string all = texts[own];
  for (const std::string& text : texts)
    if (&text != &texts[own]) all += text;
  return all;
}

std::string rank_file_name(std::size_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%05zu.safetensors", number);
  return name;
}

namespace {

void write_progress(JsonWriter& json, const Manifest& manifest) {
  json.member("run", manifest.run.id).member("parent", manifest.run.parent).member("save", manifest.save);
  json.member("step", manifest.progress.step).member("updates", manifest.progress.updates);
  json.member("samples", manifest.progress.samples).member("mesh", manifest.mesh);
  if (const LossScale& scale = manifest.progress.loss_scale; scale.scale > 0)
    json.name("loss_scale")
        .begin_object()
        .member("scale", scale.scale)
        .member("clean", scale.clean)
        .member("spared", scale.spared)
        .end_object();
}

void write_files(JsonWriter& json, const Manifest& manifest) {
  json.name("files").begin_array();
  for (const Manifest::File& file : manifest.files) {
    const std::string name = rank_file_name(static_cast<std::size_t>(&file - manifest.files.data()));
    json.begin_object().member("name", name).member("bytes", file.bytes);
    json.member("checksum", file.checksum).end_object();
  }
  json.end_array();
}

void write_sets(JsonWriter& json, const std::vector<SetSize>& sets) {
  json.name("sets").begin_array();
  for (const SetSize& set : sets)
    json.begin_object()
        .member("name", set.name)
        .member("samples", set.samples)
        .member("tokens", set.tokens)
        .end_object();
  json.end_array();
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  JsonWriter json;
  json.begin_object().member("format", format_version);
  write_progress(json, manifest);
  json.name("arithmetic").begin_array();
  for (const std::string& text : manifest.arithmetic) json.value(text);
  json.end_array().name("choices").begin_object().name("texts").begin_array();
  for (const std::string& text : manifest.choices.texts) json.value(text);
  json.end_array().name("of").begin_array();
  for (const std::size_t number : manifest.choices.of) json.value(static_cast<std::int64_t>(number));
  json.end_array().end_object().name("recipe").begin_object();
  for (const auto& [key, value] : manifest.recipe) json.member(key, value);
  json.end_object().member("plugins", parse_json(manifest.plugins, "plugins"));
  write_files(json, manifest);
  write_sets(json, manifest.sets);
  if (!manifest.base.empty()) json.member("base", manifest.base);
  std::string text = json.end_object().take();
  text.pop_back();  // the seal is the last member
  return seal(std::move(text));
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  try {
    return manifest_of(parse_json(text, "text"));
  } catch (const Error& error) {
    throw_error(ErrorCode::bad_input, source, " is no manifest that this prun can read: ", error.what());
  }
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / manifest_name;
  const std::string text = text_of(path);
  if (!is_sealed(text))
    throw_error(ErrorCode::bad_input, path.string(),
                " does not have the checksum it was written with; the file is damaged");
  return parse_manifest(text, path.string());
}

std::string manifest_checksum(const Manifest& manifest) {
  const std::string text = to_text(manifest);
  return text.substr(text.size() - seal_end.size() - checksum_digits, checksum_digits);
}

}  // namespace prun
