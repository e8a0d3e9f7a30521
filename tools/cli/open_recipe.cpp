#include "cli/open_recipe.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/thread.hpp"
#include "launch/flight.hpp"
#include "prun/error.hpp"
#include "recipe/recipe.hpp"
#include "recipe/schema.hpp"
#include "search/laid_out.hpp"
#include "search/settled_recipe.hpp"
#include "search/what_fits.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/tiers.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/rank.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- overdue watch

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Holds a call that a thread is in, and since when this has been seen.
struct Seen {
  std::uint64_t number = 0;
  Clock::duration since{};
  bool told = false;
};

// Finds a call by its depth: a call goes on while one within it is seen. `calls` may contain some that have
// ended since; these are not seen again.
Seen* seen_again(std::vector<Seen>& calls, std::uint64_t number, Clock::duration now) {
  calls.resize(depth_of(number));
  if (number == 0) return nullptr;
  if (calls.back().number != number) calls.back() = {number, now};
  return &calls.back();
}

}  // namespace

OverdueWatch::OverdueWatch(std::chrono::milliseconds limit, Found found)
    : limit_(limit), found_(std::move(found)) {
  const SignalsBlocked blocked;
  thread_ = start_thread<std::jthread>("the watch over plugins",
                                       [this](const std::stop_token& stop) { run(stop); });
}

// Runs the watch. Time in which the whole process was stopped does not count: the watch was stopped as well.
void OverdueWatch::run(const std::stop_token& stop) const {
  ::prctl(PR_SET_NAME, "prun-watch");
  std::vector<std::vector<Seen>> seen;  // calls by place
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto nap = std::clamp<std::chrono::milliseconds>(limit_ / 10, 10ms, 1s);
  Clock::duration watched{};
  Clock::time_point last = Clock::now();
  while (!changed.wait_for(lock, stop, nap, [&] { return stop.stop_requested(); })) {
    const Clock::time_point now = Clock::now();
    watched += std::min<Clock::duration>(now - std::exchange(last, now), 2 * nap);
    const std::vector<std::uint64_t> calls = calls_into_plugins();
    seen.resize(calls.size());
    for (std::size_t place = 0; place < calls.size(); ++place) {
      Seen* const call = seen_again(seen[place], calls[place], watched);
      if (!call || call->told || watched - call->since < limit_) continue;
      const std::optional<PluginAndWhere> named = call_into_plugin(place, call->number);
      if (!named) continue;
      call->told = true;
      found_(*named);
    }
  }
}

namespace {

// ------------------------------------------------------------------- plugin watch
// Watches calls into plugins that must return, and acts on one that does not.

// Says whether a call may take any time: other ranks find out what waits for them, and data may be large to
// open.
bool may_take_long(const PluginAndWhere& call, std::int64_t world) {
  if (call.plugin.starts_with("data")) return call.where == in_open;
  return call.plugin.starts_with("comm") || (call.plugin.starts_with("device") && world > 1);
}

// Says whether the other ranks will miss this one in an exchange, find where it is, and end together.
bool others_wait_for(const PluginAndWhere& call, std::int64_t world) {
  return world > 1 && (call.plugin.starts_with("data") || call.plugin.starts_with("observer"));
}

// Describes the circumstances. A device runs the kernels of other plugins, so this says what it was doing,
// and whose they may be.
std::string circumstances(const PluginAndWhere& call, const FlightRecorder& flight,
                          const std::vector<std::string>& op_plugins) {
  const FlightSnapshot snapshot = flight.snapshot();
  if (!call.plugin.starts_with("device") || snapshot.step < 0) return "";
  std::string text = "; " + it_was(describe_flight(snapshot));
  if (!op_plugins.empty()) text += "; it may be a kernel of op plugin " + join(op_plugins, ", ");
  return text;
}

// Names, while it lives, a plugin that does not return within run.hang_limit on standard error and ends the
// process, unless other ranks find that out themselves. `flight`, which must outlive it, says what a device
// was doing. Null: nothing is watched.
std::unique_ptr<OverdueWatch> watch_over_plugins(const Recipe& recipe, const FlightRecorder& flight) {
  const std::int64_t world = mesh_of(recipe).world();
  // Ranks that wait for each other end each other after the limit, so what blocks one is reported before
  // that.
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

}  // namespace

// ------------------------------------------------------------------- open unsettled

Recipe with_whole_paths(const Recipe& recipe, const std::filesystem::path& file) {
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  bool whole = true;
  std::vector<std::string> paths;
  for (const std::filesystem::path path : recipe.texts("plugins.path")) {
    whole = whole && path.is_absolute();
    paths.push_back((folder / path).lexically_normal().string());
  }
  return whole ? recipe : recipe.with("plugins.path", recipe::to_toml(recipe::Value(paths)));
}

Opened open_unsettled(const Arguments& arguments, const std::string& file) {
  Opened opened;
  opened.plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written =
      with_whole_paths(Recipe::load(file, arguments.sets, opened.plugins->catalog()), file);
  opened.flight = std::make_unique<FlightRecorder>();
  opened.watch = watch_over_plugins(written, *opened.flight);
  DeviceChoice device = choose_device(written, *opened.plugins, {0, 1});
  opened.chosen = device.said;
  opened.unsettled = std::move(device.recipe);
  return opened;
}

namespace {

// ------------------------------------------------------------------- checkpoint recipe
// Returns the recipe that a checkpoint was saved with, as one that can be opened again.

struct CheckpointRecipe {
  Recipe recipe;
  bool imported = false;  // it was imported and not trained: it states only its model
};

bool has(const Settings& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const auto& setting) { return setting.first == key; });
}

// Completes an import: a recipe must give these besides a model, but parameters, their loss and their text
// depend on none of them.
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
  for (const DType half : {DType::bf16, DType::f16}) {
    const auto is_half = [&](const auto& tensor) { return tensor.second.type == half; };
    if (!std::any_of(files.tensors().begin(), files.tensors().end(), is_half)) continue;
    settings.emplace_back("precision.compute", detail::concat("'", name_of(half), "'"));
    break;
  }
}

// Says whether the plugin of a section ("data.", "strategy.0.") reads a key, rather than the core, or a
// plugin of a section inside that one.
bool is_read_by_plugin(const std::string& key, const std::string& section) {
  if (!key.starts_with(section)) return false;
  for (const recipe::SectionRule& rule : recipe::core_sections()) {
    const bool inside = rule.name.starts_with(section) && key.starts_with(rule.name + ".");
    const bool same = rule.list ? section.starts_with(rule.name + ".") : section == rule.name + ".";
    if (inside || (same && rule.schema.find(std::string_view(key).substr(section.size())))) return false;
  }
  return true;
}

// Forgets options of replaced plugins: where another plugin is set in a section, they have no meaning;
// options of the core keep theirs.
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

// Reads from a manifest, which may come from anywhere.
std::string text_of(const Settings& settings, const std::string& manifest) {
  try {
    return to_toml(settings);
  } catch (const Error& error) {
    throw_error(error.code(), manifest, ": ", error.what());
  }
}

// Returns the recipe with `sets`, as --set takes them: if one sets another plugin in a section, the
// checkpoint's options of the previous one are left out. An imported checkpoint gets what a recipe must give
// besides a model: one rank, no data, and sequences of one token if `model.seq` is not set.
CheckpointRecipe recipe_of_checkpoint(const std::filesystem::path& checkpoint,
                                      const std::vector<std::string>& sets, PluginCatalog catalog) {
  const CheckpointFiles files(checkpoint);
  Settings settings = files.manifest().recipe;
  const bool imported = !has(settings, "run.name");
  if (imported) complete_import(settings, files);
  // The origin of parameters when the run began matters only for those that are still stored there.
  const bool whole = files.manifest().base.empty();
  std::erase_if(settings, [&](const auto& setting) {
    return setting.first == "model.config" || setting.first == "run.resume" ||
           setting.first == "model.adapter" || (whole && setting.first == "model.init");
  });
  forget_replaced_plugins(settings, sets);
  const std::string manifest = checkpoint / manifest_name;
  return {Recipe::parse(text_of(settings, manifest), manifest, sets, std::move(catalog)), imported};
}

// ------------------------------------------------------------------- open recipe

namespace fs = std::filesystem;

// Returns the place for a plan without started ranks: the first rank's on its host, with its share of the
// cores.
LocalPlace planned_place(const Recipe& recipe, PluginHost& plugins) {
  const std::int64_t world = mesh_of(recipe).world();
  if (world == 1) return {};
  DeviceInfo info;
  try {
    const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
    raise(device->info(&info));
  } catch (const Error&) {
    return {};  // code that needs the device says why there is none
  }
  return {0, static_cast<int>(ranks_of_host(info, recipe, plugins, world)), true, true};
}

// Settles what is left open: first the device, by which all else is planned.
Opened opened(std::unique_ptr<PluginHost> plugins, const Arguments& arguments, const Recipe& written,
              const std::optional<Identity>& rank) {
  Opened opened;
  opened.flight = std::make_unique<FlightRecorder>();
  opened.watch = watch_over_plugins(written, *opened.flight);
  const LocalPlace here = rank ? place_of(*rank) : LocalPlace{0, static_cast<int>(ranks_asked_for(written))};
  DeviceChoice device = choose_device(rank ? with_chosen_device(written, *rank) : written, *plugins, here);
  LaidOutRecipe laid_out = lay_out(device.recipe, *plugins, arguments.path("--costs"), rank);
  device.recipe = std::move(laid_out.recipe);
  plugins->set_local(rank ? here : planned_place(device.recipe, *plugins));
  SettledRecipe settled = settle(device.recipe, *plugins, arguments.path("--costs"));
  if (!device.said.empty()) settled.said.insert(settled.said.begin(), device.said);
  if (!laid_out.said.empty()) settled.said.push_back(std::move(laid_out.said));
  opened.unsettled = device.recipe;
  opened.recipe = std::move(settled.recipe);
  opened.chosen = join(settled.said, "; ");
  opened.plugins = std::move(plugins);
  return opened;
}

}  // namespace

std::vector<SearchPlace> plugin_places_of_checkpoint(const Arguments& arguments, const fs::path& folder) {
  std::string said;
  fs::path here;  // paths on the command line are relative to it
  for (const auto& [key, text] : read_manifest(folder).recipe)
    if (key == "plugins.path") said = text;
  constexpr std::string_view set = "plugins.path=";
  for (const std::string& one : arguments.sets)
    if (one.starts_with(set)) said = one.substr(set.size()), here = fs::current_path();
  const auto value = said.empty() ? std::nullopt : recipe::parse_value(recipe::OptionType::strings, said);
  std::vector<fs::path> paths;
  if (value)
    for (const std::string& path : std::get<std::vector<std::string>>(*value)) paths.push_back(here / path);
  return plugin_places_of(paths, arguments.plugin_paths);
}

Opened open_recipe(const Arguments& arguments, const std::string& file, const std::optional<Identity>& rank) {
  auto plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written = with_whole_paths(Recipe::load(file, arguments.sets, plugins->catalog()), file);
  return opened(std::move(plugins), arguments, written, rank);
}

Opened open_recipe_text(const Arguments& arguments, std::string text, const std::string& file) {
  auto plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written =
      with_whole_paths(Recipe::parse(std::move(text), file, arguments.sets, plugins->catalog()), file);
  return opened(std::move(plugins), arguments, written, std::nullopt);
}

void say_without_latest(const std::string& where) {
  if (const std::string note = note_without_latest(where); !note.empty())
    std::fprintf(stderr, "prun: %s\n", note.c_str());
}

Opened open_checkpoint(const Arguments& arguments, const std::string& where,
                       const std::optional<Identity>& rank) {
  const std::filesystem::path folder = find_checkpoint(where);
  if (!rank) say_without_latest(where);
  auto plugins = std::make_unique<PluginHost>(plugin_places_of_checkpoint(arguments, folder));
  const CheckpointRecipe saved = recipe_of_checkpoint(folder, arguments.sets, plugins->catalog());
  Opened result = opened(std::move(plugins), arguments, saved.recipe, rank);
  result.imported = saved.imported;
  return result;
}

Assembly assemble(const Opened& opened) {
  Assembly assembly = or_what_fits(*opened.recipe, *opened.plugins, check_hosts_have_room,
                                   [&] { return Assembly(*opened.recipe, *opened.plugins); });
  refuse_idle_tiers(assembly);
  return assembly;
}

Recipe with_thread_ranks(Recipe recipe) {
  if (recipe.find("device.threads")) recipe = recipe.with("device.threads", "1");
  return unpinned(recipe);
}

}  // namespace prun
