#include "train/checkpoint_folder.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/durable_file.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
constexpr const char* format_version = "2";
constexpr std::string_view name_start = "step-";

std::optional<std::int64_t> to_count(std::string_view text) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

const std::string& text_of(const SafetensorsFile& file, std::string_view key) {
  const auto found = file.index().metadata().find(key);
  if (found == file.index().metadata().end())
    throw_error(ErrorCode::bad_input, file.path().string(), ": metadata '", key,
                "' is missing; this is no checkpoint of prun");
  return found->second;
}

std::int64_t count_of(const SafetensorsFile& file, std::string_view key) {
  const std::optional<std::int64_t> number = to_count(text_of(file, key));
  if (!number)
    throw_error(ErrorCode::bad_input, file.path().string(), ": metadata '", key,
                "' is no count; this is no checkpoint of prun");
  return *number;
}

void check_format(const SafetensorsFile& file) {
  const std::string& format = text_of(file, "prun.format");
  if (format != format_version)
    throw_error(ErrorCode::bad_input, file.path().string(), " is a checkpoint of format ", in_quotes(format),
                ", this prun reads format '", format_version, "'; go on with the prun that saved it");
  if (!file.has_checksums())
    throw_error(ErrorCode::bad_input, file.path().string(),
                " has no checksums, so nobody knows whether it is whole; go on from another checkpoint");
}

std::string folder_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

// Of a name as checkpoints have them; nothing for "step-best".
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(name_start)) return std::nullopt;
  const std::optional<std::int64_t> step = to_count(std::string_view(name).substr(name_start.size()));
  return step && folder_name(*step) == name ? step : std::nullopt;
}

struct Place {
  fs::path path;
  std::int64_t step = 0;
};

// Everything that is called like a checkpoint.
std::vector<Place> places_in(const fs::path& run_folder) {
  std::vector<Place> places;
  std::error_code error;
  for (fs::directory_iterator it(run_folder, error), end; !error && it != end; it.increment(error))
    if (const auto step = step_of(it->path().filename().string())) places.push_back({it->path(), *step});
  if (error) throw_storage_error("list", run_folder, error.value());
  return places;
}

// The number of its save; nothing where it is not a checkpoint that this run saved at that step.
std::optional<std::int64_t> own_save(const Place& place, const RunIdentity& run) {
  std::error_code ignored;
  if (!fs::is_directory(fs::symlink_status(place.path, ignored))) return std::nullopt;
  try {
    const CheckpointHead head = read_head(SafetensorsFile(place.path / rank_file_name(0)));
    if (head.run.id != run.id || head.progress.step != place.step) return std::nullopt;
    return head.save;
  } catch (const Error&) {
    return std::nullopt;
  }
}

struct OwnCheckpoint {
  fs::path path;
  std::int64_t save = 0;
};

// The last one saved first.
std::vector<OwnCheckpoint> own_checkpoints(const fs::path& run_folder, const RunIdentity& run) {
  std::vector<OwnCheckpoint> own;
  for (const Place& place : places_in(run_folder))
    if (const auto save = own_save(place, run)) own.push_back({place.path, *save});
  std::sort(own.begin(), own.end(),
            [](const OwnCheckpoint& a, const OwnCheckpoint& b) { return a.save > b.save; });
  return own;
}

}  // namespace

SafetensorsMetadata to_metadata(const CheckpointHead& head) {
  return {{"prun.format", format_version},
          {"prun.run", head.run.id},
          {"prun.parent", head.run.parent},
          {"prun.save", std::to_string(head.save)},
          {"prun.step", std::to_string(head.progress.step)},
          {"prun.updates", std::to_string(head.progress.updates)},
          {"prun.samples", std::to_string(head.progress.samples)},
          {"prun.rank", std::to_string(head.rank)},
          {"prun.layout", head.layout},
          {"prun.parts", head.parts}};
}

CheckpointHead read_head(const SafetensorsFile& file) {
  check_format(file);
  CheckpointHead head;
  head.run = {text_of(file, "prun.run"), text_of(file, "prun.parent")};
  if (!is_run_id(head.run.id))
    throw_error(ErrorCode::bad_input, file.path().string(), ": metadata 'prun.run' is ",
                in_quotes(head.run.id), ", not the name of a run; this is no checkpoint of prun");
  head.save = count_of(file, "prun.save");
  head.progress = {count_of(file, "prun.step"), count_of(file, "prun.updates"),
                   count_of(file, "prun.samples")};
  head.rank = count_of(file, "prun.rank");
  head.layout = text_of(file, "prun.layout");
  head.parts = text_of(file, "prun.parts");
  return head;
}

fs::path checkpoint_path(const fs::path& run_folder, std::int64_t step) {
  return run_folder / folder_name(step);
}

std::string rank_file_name(std::int64_t rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors", static_cast<long long>(rank));
  return name;
}

fs::path find_checkpoint(const fs::path& where) {
  std::error_code error;
  const fs::file_type type = fs::status(where, error).type();
  if (type == fs::file_type::not_found)
    throw_error(ErrorCode::not_found, where.string(),
                " is not there; run.resume takes the folder of a checkpoint or of a run");
  if (type == fs::file_type::none) throw_storage_error("look at", where, error.value());
  if (type != fs::file_type::directory)
    throw_error(ErrorCode::bad_input, where.string(),
                " is not a folder; run.resume takes the folder of a checkpoint or of a run");
  if (fs::exists(fs::symlink_status(where / rank_file_name(0), error))) return where;
  if (const auto latest = read_latest(where)) return *latest;
  throw_error(ErrorCode::not_found, where.string(), " holds no checkpoint: there is neither ",
              rank_file_name(0), " nor `latest` in it");
}

void check_belongs(const SafetensorsFile& file, const CheckpointHead& head) {
  std::error_code ignored;
  const fs::path folder = fs::canonical(file.path().parent_path(), ignored);
  const std::optional<std::int64_t> step = step_of(folder.filename().string());
  if (!step) return;  // the user's own name for it
  if (*step != head.progress.step)
    throw_error(ErrorCode::bad_input, file.path().string(), " is a file of step ", head.progress.step,
                " in a folder of step ", *step, "; bring it back to where it was");
  const std::optional<RunIdentity> owner = owner_of(folder.parent_path());
  if (owner && owner->id != head.run.id)
    throw_error(ErrorCode::bad_input, file.path().string(), " is a file of run ", head.run.id,
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

std::int64_t last_save(const fs::path& run_folder, const RunIdentity& run) {
  const std::vector<OwnCheckpoint> own = own_checkpoints(run_folder, run);
  return own.empty() ? 0 : own.front().save;
}

void remove_old_checkpoints(const fs::path& run_folder, const RunIdentity& run, std::int64_t keep) {
  const std::optional<fs::path> latest = read_latest(run_folder);
  const std::vector<OwnCheckpoint> own = own_checkpoints(run_folder, run);
  for (std::size_t i = static_cast<std::size_t>(keep); i < own.size(); ++i)
    if (own[i].path != latest) remove_folder(own[i].path);
}

}  // namespace prun
