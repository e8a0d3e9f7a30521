#include "train/checkpoint/checkpoint_folder.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <optional>

#include "base/crc32c.hpp"
#include "base/durable_file.hpp"
#include "base/file_system.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- best checkpoint

namespace fs = std::filesystem;
constexpr const char* link_name = "best";
constexpr const char* record_name = "best.json";

constexpr const char* fresh_link_name = ".best.new";

// Puts a link in place of another at once.
void put_link(const fs::path& run_folder, const std::string& target) {
  const fs::path link = run_folder / link_name, fresh = run_folder / fresh_link_name;
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) throw_storage_error("write", link, error.value());
  sync_folder(run_folder);
}

}  // namespace

std::optional<BestCheckpoint> read_best(const fs::path& run_folder) {
  const fs::path record = run_folder / record_name;
  std::error_code ignored;
  if (!fs::is_regular_file(record, ignored)) return {};
  const std::optional<std::string> text = unsealed(whole_file(record, JsonLimits{}.bytes));
  if (!text) return {};
  const JsonValue json = parse_json(*text, record.string());
  return BestCheckpoint{json.at("step").as_int64(), json.at("loss").as_double()};
}

void check_best_places(const fs::path& run_folder) {
  const auto check = [&](const char* name, fs::file_type kind, const char* what) {
    std::error_code ignored;  // what cannot be inspected cannot be written either
    const fs::path path = run_folder / name;
    const fs::file_type there = fs::symlink_status(path, ignored).type();
    if (there != fs::file_type::not_found && there != kind)
      throw_error(
          ErrorCode::bad_input, path.string(), " is no ", what,
          " of prun's and stands where one is to say which checkpoint has the lowest loss; move it away");
  };
  check(link_name, fs::file_type::symlink, "link");
  check(fresh_link_name, fs::file_type::symlink, "link");
  check(record_name, fs::file_type::regular, "file");
}

void set_best(const fs::path& run_folder, const BestCheckpoint& best) {
  check_best_places(run_folder);
  JsonWriter json;
  json.begin_object().member("step", best.step).member("loss", best.loss).end_object();
  put_link(run_folder, checkpoint_path(run_folder, best.step).filename());
  put_text_file(run_folder / record_name, sealed_line(json.take()));
}

namespace {

// ------------------------------------------------------------------- checkpoint folder

namespace fs = std::filesystem;
constexpr std::string_view name_start = "step-";

std::optional<std::int64_t> to_count(std::string_view text) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::string folder_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

struct Place {
  fs::path path;
  std::int64_t step = 0;
};

// Returns everything that has the name of a checkpoint.
std::vector<Place> places_in(const fs::path& run_folder) {
  std::vector<Place> places;
  std::error_code error;
  for (fs::directory_iterator it(run_folder, error), end; !error && it != end; it.increment(error))
    if (const auto step = step_of(it->path())) places.push_back({it->path(), *step});
  if (error) throw_storage_error("list", run_folder, error.value());
  return places;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// Returns nothing if the manifest is damaged or missing: then it is unknown whose it is.
std::optional<Manifest> manifest_in(const fs::path& folder) {
  try {
    return read_manifest(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns the number of its save, or nothing if it is not a checkpoint that this run saved at that step.
std::optional<std::int64_t> own_save(const Place& place, const RunIdentity& run) {
  const std::optional<Manifest> manifest = is_folder(place.path) ? manifest_in(place.path) : std::nullopt;
  if (!manifest || manifest->run.id != run.id || manifest->progress.step != place.step) return std::nullopt;
  return manifest->save;
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(folder / manifest_name, ignored));
}

bool has_damaged_manifest(const fs::path& folder) { return is_checkpoint(folder) && !manifest_in(folder); }

}  // namespace

std::optional<std::int64_t> step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (!name.starts_with(name_start)) return std::nullopt;
  const std::optional<std::int64_t> step = to_count(std::string_view(name).substr(name_start.size()));
  return step && folder_name(*step) == name ? step : std::nullopt;
}

fs::path checkpoint_path(const fs::path& run_folder, std::int64_t step) {
  return run_folder / folder_name(step);
}

namespace {

void check_folder(const fs::path& where) {
  std::error_code error;
  const fs::file_type type = fs::status(where, error).type();
  if (type == fs::file_type::not_found)
    throw_error(ErrorCode::not_found, where.string(),
                " is not there; give the folder of a checkpoint or of a run", did_you_mean_beside(where));
  if (type == fs::file_type::none) throw_storage_error("look at", where, error.value());
  if (type != fs::file_type::directory)
    throw_error(ErrorCode::bad_input, where.string(),
                " is not a folder; give the folder of a checkpoint or of a run");
}

// Returns the last whole checkpoint of the run that the folder belongs to or, if that is unknown, of any run.
std::optional<fs::path> saved_last(const fs::path& run_folder) {
  const std::optional<RunIdentity> owner = owner_of(run_folder);
  std::optional<fs::path> last;
  std::int64_t last_save = 0;
  for (const Place& place : places_in(run_folder)) {
    const std::optional<Manifest> manifest = manifest_in(place.path);
    if (!manifest || manifest->progress.step != place.step || (owner && owner->id != manifest->run.id))
      continue;
    if (last && manifest->save <= last_save) continue;
    last = place.path;
    last_save = manifest->save;
  }
  return last;
}

}  // namespace

fs::path find_checkpoint(const fs::path& where) {
  check_folder(where);
  if (is_checkpoint(where)) return where;
  if (const auto latest = read_latest(where)) return *latest;
  if (const auto last = saved_last(where)) return *last;
  throw_error(ErrorCode::not_found, where.string(), " holds no checkpoint: there is neither ", manifest_name,
              " nor `latest` nor a whole checkpoint in it");
}

std::string note_without_latest(const fs::path& where) {
  std::error_code ignored;
  if (!fs::is_directory(where, ignored) || is_checkpoint(where) || read_latest(where)) return {};
  const std::optional<fs::path> last = saved_last(where);
  if (!last) return {};
  return detail::concat(where.string(), " has no `latest`, as where a run is killed in its first save; ",
                        last->string(), ", which was saved last, stands for it");
}

std::vector<fs::path> checkpoints_from(const fs::path& where) {
  std::vector<fs::path> list = {find_checkpoint(where)};
  if (is_checkpoint(where)) return list;
  const auto add = [&](const fs::path& path) {
    if (path != list.front()) list.push_back(path);
  };
  for (const Place& place : places_in(where))
    if (has_damaged_manifest(place.path)) add(place.path);
  if (const std::optional<RunIdentity> owner = owner_of(where))
    for (const OwnCheckpoint& own : own_checkpoints(where, *owner)) add(own.path);
  return list;
}

std::optional<Manifest> manifest_to_go_on_from(const fs::path& where) {
  for (const fs::path& folder : checkpoints_from(where)) try {
      return read_manifest(folder);
    } catch (const Error& error) {
      if (exit_code(error.code()) != exit_code(ErrorCode::bad_input)) throw;
    }
  return {};
}

std::vector<fs::path> checkpoints_in(const fs::path& where) {
  check_folder(where);
  if (is_checkpoint(where)) return {where};
  std::vector<std::pair<std::int64_t, fs::path>> found;  // damaged ones come first
  for (const Place& place : places_in(where)) {
    if (!is_folder(place.path)) continue;
    const std::optional<Manifest> manifest = manifest_in(place.path);
    found.emplace_back(manifest ? manifest->save : INT64_MAX, place.path);
  }
  if (found.empty())
    throw_error(ErrorCode::not_found, where.string(),
                " holds no checkpoint; name one, or the folder of a run");
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> list;
  for (auto& [save, path] : found) list.push_back(std::move(path));
  return list;
}

void check_belongs(const fs::path& checkpoint, const Manifest& manifest) {
  std::error_code ignored;
  const fs::path folder = fs::canonical(checkpoint, ignored);
  const std::optional<std::int64_t> step = step_of(folder);
  if (!step) return;  // the user named it
  if (*step != manifest.progress.step)
    throw_error(ErrorCode::bad_input, checkpoint.string(), " is a folder of step ", *step,
                " and holds a checkpoint of step ", manifest.progress.step,
                "; bring it back to where it was");
  const std::optional<RunIdentity> owner = owner_of(folder.parent_path());
  if (owner && owner->id != manifest.run.id)
    throw_error(ErrorCode::bad_input, checkpoint.string(), " is a checkpoint of run ", manifest.run.id,
                " in the folder of run ", owner->id, "; bring it back to where it was");
}

void check_place(const fs::path& run_folder, const RunIdentity& run, std::int64_t step) {
  const Place place{checkpoint_path(run_folder, step), step};
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(place.path, ignored)) && !own_save(place, run))
    throw_error(ErrorCode::bad_input, place.path.string(), " is not a whole checkpoint of this run (", run.id,
                ") and stands where one is to be saved; move it away or give run.out another folder");
}

void check_places_from(const fs::path& run_folder, const RunIdentity& run, std::int64_t step) {
  for (const Place& place : places_in(run_folder))
    if (place.step >= step) check_place(run_folder, run, place.step);
}

std::vector<OwnCheckpoint> own_checkpoints(const fs::path& run_folder, const RunIdentity& run) {
  std::vector<OwnCheckpoint> own;
  for (const Place& place : places_in(run_folder))
    if (const auto save = own_save(place, run)) own.push_back({place.path, *save, place.step});
  std::sort(own.begin(), own.end(),
            [](const OwnCheckpoint& a, const OwnCheckpoint& b) { return a.save > b.save; });
  return own;
}

std::int64_t last_save(const fs::path& run_folder, const RunIdentity& run) {
  const std::vector<OwnCheckpoint> own = own_checkpoints(run_folder, run);
  return own.empty() ? 0 : own.front().save;
}

void set_aside(const fs::path& damaged, const fs::path& used) {
  set_latest(damaged.parent_path(), used.filename().string());
  std::error_code error;
  fs::path aside = damaged;
  for (int number = 1; fs::exists(fs::symlink_status(aside, error)); ++number) {
    aside = damaged;
    aside += number == 1 ? ".damaged" : detail::concat(".damaged.", number);
  }
  fs::rename(damaged, aside, error);
  if (error) throw_storage_error("rename", damaged, error.value());
  sync_folder(damaged.parent_path());
}

std::vector<fs::path> remove_old_checkpoints(const fs::path& run_folder, const RunIdentity& run, Keep keep) {
  std::vector<fs::path> removed;
  if (keep.last == 0) return removed;
  const std::optional<fs::path> latest = read_latest(run_folder);
  const std::optional<BestCheckpoint> best = read_best(run_folder);
  const std::vector<OwnCheckpoint> own = own_checkpoints(run_folder, run);
  for (std::size_t i = static_cast<std::size_t>(keep.last); i < own.size(); ++i) {
    if (own[i].path == latest || (best && own[i].step == best->step) ||
        (keep.every > 0 && own[i].step % keep.every == 0))
      continue;
    remove_folder(own[i].path);
    removed.push_back(own[i].path);
  }
  return removed;
}

// ------------------------------------------------------------------- kernel choices

std::string kernel_choices(const Assembly& assembly) {
  std::string all;
  for (DeviceInterface* const device : assembly.devices()) {
    Text lines;
    raise(device->choices(&lines));
    all += lines.view();
  }
  return all;
}

const Assembly& with_kernel_choices(const Assembly& assembly) {
  const std::string& resume = assembly.recipe().text("run.resume");
  if (resume.empty()) return assembly;
  const std::optional<Manifest> manifest = manifest_to_go_on_from(resume);
  if (!manifest) return assembly;
  const std::string lines = manifest->choices.for_rank(static_cast<std::size_t>(assembly.rank()));
  for (DeviceInterface* const device : assembly.devices()) raise(device->prefer(lines));
  return assembly;
}

// ------------------------------------------------------------------- plugin record

std::string plugin_record(const PluginHost& plugins) {
  JsonWriter json;
  json.begin_array();
  for (const auto& [key, library] : plugins.loaded()) {
    const PluginNote& note = library->note();
    json.begin_object().member("kind", note.kind).member("name", note.name).member("version", note.version);
    json.member("path", library->path().string()).member("sha256", library->sha256());
    json.member("build_id", note.build_id).end_object();
  }
  return json.end_array().take();
}

}  // namespace prun
