#include "cli/open_recipe.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"
#include "recipe/core_schema.hpp"
#include "train/assemble/automatic.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/quickest.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/resumed_settings.hpp"
#include "train/checkpoint/settings.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun {

LocalPlace place_of(const Identity& rank) { return {rank.local_rank, rank.local_world, rank.how == "prun"}; }

namespace {

// Whether a call may take as long as it likes: what waits for other ranks is theirs to find, and data may be
// large to open.
bool may_take_long(const PluginAndWhere& call, std::int64_t world) {
  if (call.plugin.starts_with("data")) return call.where == "in open()";
  return call.plugin.starts_with("comm") || (call.plugin.starts_with("device") && world > 1);
}

// Whether the other ranks will miss this one in an exchange, find where it is, and end together.
bool others_wait_for(const PluginAndWhere& call, std::int64_t world) {
  return world > 1 && (call.plugin.starts_with("data") || call.plugin.starts_with("observer"));
}

// A device runs the kernels of others: what it was at, and whose they may be.
std::string circumstances(const PluginAndWhere& call, const FlightRecorder& flight,
                          const std::vector<std::string>& op_plugins) {
  const FlightSnapshot snapshot = flight.snapshot();
  if (!call.plugin.starts_with("device") || snapshot.step < 0) return "";
  std::string text = "; " + it_was(describe_flight(snapshot));
  if (!op_plugins.empty()) text += "; it may be a kernel of op plugin " + join(op_plugins, ", ");
  return text;
}

std::unique_ptr<OverdueWatch> watch_over_plugins(const Recipe& recipe, const FlightRecorder& flight) {
  const std::int64_t world = mesh_of(recipe).world();
  // Ranks that wait for each other end each other after the limit: what holds one up is said before that.
  const std::chrono::milliseconds limit(recipe.integer("run.hang_limit") * (world > 1 ? 800 : 1000));
  if (limit.count() == 0) return nullptr;
  const auto found = [world, op_plugins = recipe.texts("plugins.ops"), limit,
                      &flight](const PluginAndWhere& call) {
    if (may_take_long(call, world)) return;
    std::fprintf(
        stderr,
        "prun: %s hangs %s: it has not come back for %g s (run.hang_limit)%s; mend the plugin or leave "
        "it out of the recipe\n",
        call.plugin.c_str(), call.where.c_str(), static_cast<double>(limit.count()) / 1000,
        circumstances(call, flight, op_plugins).c_str());
    if (!others_wait_for(call, world)) ::_exit(exit_code(ErrorCode::hang));
  };
  return std::make_unique<OverdueWatch>(limit, found);
}

// Of a plan that nobody has started ranks for: that of the first on its host, with its share of the cores.
LocalPlace planned_place(const Recipe& recipe, PluginHost& plugins) {
  const std::int64_t world = mesh_of(recipe).world();
  if (world == 1) return {};
  DeviceInfo info;
  try {
    const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
    raise(device->info(&info));
  } catch (const Error&) {
    return {};  // whoever needs the device says why there is none
  }
  return {0, static_cast<int>(ranks_of_host(info, world)), true, true};
}

// With the device that whoever started this rank has chosen.
Recipe with_chosen_device(const Recipe& written, const std::optional<Identity>& rank) {
  const char* const chosen = std::getenv(chosen_device_variable);
  const bool is_told = rank && rank->how == "prun" && chosen;
  return is_told && written.section("device").plugin() == automatic ? written.with("device.plugin", chosen)
                                                                    : written;
}

// What is left open is settled: first the device, by which all else is planned.
Opened opened(std::unique_ptr<PluginHost> plugins, const Arguments& arguments, const Recipe& written,
              const std::optional<Identity>& rank) {
  Opened opened;
  opened.flight = std::make_unique<FlightRecorder>();
  opened.watch = watch_over_plugins(written, *opened.flight);
  const auto world = static_cast<int>(mesh_of(written).world());
  const DeviceChoice device = choose_device(with_chosen_device(written, rank), *plugins,
                                            rank ? place_of(*rank) : LocalPlace{0, world});
  plugins->set_local(rank ? place_of(*rank) : planned_place(device.recipe, *plugins));
  const RecipeWay before = settled_as_before(device.recipe, *plugins);
  const Quickest quickest = choose_quickest(before.recipe, *plugins, arguments.path("--costs"));
  opened.unsettled = device.recipe;
  opened.recipe = quickest.recipe;
  std::vector<std::string> said = {device.said, quickest.said};
  if (!before.settled.empty()) said.push_back(before.said() + ", as in the run that goes on");
  std::erase(said, "");
  opened.chosen = join(said, "; ");
  opened.plugins = std::move(plugins);
  return opened;
}

bool has(const Settings& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const auto& setting) { return setting.first == key; });
}

// What a recipe must give besides a model: nothing that parameters, their loss or their text depend on.
void complete_import(Settings& settings, const CheckpointFiles& files) {
  for (const auto& [key, value] : {std::pair("run.name", "'imported'"),
                                   {"run.steps", "1"},
                                   {"data.plugin", "'tokens'"},
                                   {"data.path", "''"},
                                   {"batch.global", "1"},
                                   {"batch.micro", "1"},
                                   {"optimizer.plugin", "'sgd'"},
                                   {"optimizer.lr", "1.0"}})
    settings.emplace_back(key, value);
  const auto half = [](const auto& tensor) { return tensor.second.type == DType::bf16; };
  if (std::any_of(files.tensors().begin(), files.tensors().end(), half))
    settings.emplace_back("precision.compute", "'bf16'");
}

// Whether it is the plugin of a section ("data.", "strategy.0.") that reads a key, not the core, or somebody
// in a section inside that one.
bool is_read_by_plugin(const std::string& key, const std::string& section) {
  if (!key.starts_with(section)) return false;
  for (const recipe::SectionRule& rule : recipe::core_sections()) {
    const bool inside = rule.name.starts_with(section) && key.starts_with(rule.name + ".");
    const bool same = rule.list ? section.starts_with(rule.name + ".") : section == rule.name + ".";
    if (inside || (same && rule.schema.find(std::string_view(key).substr(section.size())))) return false;
  }
  return true;
}

// Where another plugin is asked for in a section, what the recipe said to the one before has no meaning; what
// it said to the core keeps its own.
void forget_replaced_plugins(Settings& settings, const std::vector<std::string>& sets) {
  constexpr std::string_view plugin = "plugin";
  for (const std::string& set : sets) {
    const std::size_t equals = std::min(set.find('='), set.size());
    const std::string key(trim(std::string_view(set).substr(0, equals)));
    if (!key.ends_with(plugin)) continue;
    const auto named = recipe::parse_value(recipe::OptionType::string,
                                           std::string_view(set).substr(std::min(equals + 1, set.size())));
    const auto was = std::find_if(settings.begin(), settings.end(),
                                  [&](const auto& setting) { return setting.first == key; });
    if (was == settings.end() || !named || was->second == recipe::to_toml(*named)) continue;
    const std::string section = key.substr(0, key.size() - plugin.size());
    std::erase_if(settings, [&](const auto& setting) { return is_read_by_plugin(setting.first, section); });
  }
}

// Of a manifest, which anybody may have written.
std::string text_of(const Settings& settings, const std::string& manifest) {
  try {
    return to_toml(settings);
  } catch (const Error& error) {
    throw_error(error.code(), manifest, ": ", error.what());
  }
}

}  // namespace

Opened open_recipe(const Arguments& arguments, const std::string& file, const std::optional<Identity>& rank) {
  auto plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written = Recipe::load(file, arguments.sets, plugins->catalog());
  return opened(std::move(plugins), arguments, written, rank);
}

void say_without_latest(const std::string& where) {
  if (const std::string note = note_without_latest(where); !note.empty())
    std::fprintf(stderr, "prun: %s\n", note.c_str());
}

Opened open_checkpoint(const Arguments& arguments, const std::string& where,
                       const std::optional<Identity>& rank) {
  const std::filesystem::path folder = find_checkpoint(where);
  if (!rank) say_without_latest(where);
  auto plugins = std::make_unique<PluginHost>(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const CheckpointFiles files(folder);
  Settings settings = files.manifest().recipe;
  const bool imported = !has(settings, "run.name");
  if (imported) complete_import(settings, files);
  // Where parameters came from when the run began is of no interest any more.
  std::erase_if(settings, [](const auto& setting) {
    return setting.first == "model.config" || setting.first == "model.init" || setting.first == "run.resume";
  });
  forget_replaced_plugins(settings, arguments.sets);
  const std::string manifest = folder / manifest_name;
  const Recipe written =
      Recipe::parse(text_of(settings, manifest), manifest, arguments.sets, plugins->catalog());
  Opened result = opened(std::move(plugins), arguments, written, rank);
  result.imported = imported;
  return result;
}

Recipe with_thread_ranks(Recipe recipe) {
  if (recipe.find("device.threads")) recipe = recipe.with("device.threads", "1");
  return unpinned(recipe);
}

}  // namespace prun
