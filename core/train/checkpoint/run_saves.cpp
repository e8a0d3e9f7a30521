#include "train/checkpoint/run_saves.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- run saves

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes())
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.extent);
  return text;
}

}  // namespace

void StagedCheckpoint::make_folder() {
  check_place(place.run_folder, place.run, progress.step);
  clear_dead_saves(place.run_folder);
  folder =
      std::make_unique<DurableFolder>(checkpoint_path(place.run_folder, progress.step), Existing::replace);
}

std::filesystem::path StagedCheckpoint::file_of(int rank) const {
  return staging / rank_file_name(static_cast<std::size_t>(rank));
}

std::filesystem::path StagedCheckpoint::put_in_place(const Assembly& assembly, const std::string& plugins) {
  DurableFile file(staging / manifest_name);
  file.write(to_text(manifest(assembly, plugins)));
  file.commit();
  folder->commit_as_latest();
  remove_old_checkpoints(place.run_folder, place.run, place.keep);
  return folder->target();
}

Manifest StagedCheckpoint::manifest(const Assembly& assembly, const std::string& plugins) const {
  Manifest manifest{place.run,
                    place.save,
                    progress,
                    mesh_text(assembly.mesh()),
                    {},
                    choices,
                    settings_of(assembly.recipe()),
                    plugins,
                    {},
                    place.sets,
                    place.base};
  for (const DeviceInfo& device : assembly.device_infos())
    manifest.arithmetic.emplace_back(device.arithmetic.view());
  for (int rank = 0; rank < assembly.mesh().world(); ++rank)
    manifest.files.push_back(file_record(file_of(rank)));
  return manifest;
}

namespace {

namespace fs = std::filesystem;

// Reserves as much of the disk as a save will take.
void reserve(const fs::path& path, std::int64_t bytes) {
  DurableFile file(path);
  file.reserve(bytes);
  file.write("trial");
  file.commit();
}

}  // namespace

CheckpointSaver::CheckpointSaver(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate,
                                 std::string plugins, Announce others, std::function<void()> saving)
    : assembly_(assembly),
      plugins_(std::move(plugins)),
      others_(std::move(others)),
      saving_(std::move(saving)),
      state_(saved_state(assembly, memory, gate)) {}

CheckpointSaver::~CheckpointSaver() {
  thread_ = {};  // ends before what it works with
}

std::vector<std::string> CheckpointSaver::meet(std::string_view channel, const std::string& mine) const {
  return others_ ? others_(channel, mine) : std::vector<std::string>{mine};
}

void CheckpointSaver::try_out(const fs::path& run_folder) {
  std::int64_t bytes = 0;
  for (const HeldSlice& held : assembly_.saved_slices()) bytes += held.bytes();
  std::optional<DurableFolder> folder;  // a folder that is never put in place
  if (assembly_.rank() == 0) folder.emplace(run_folder / "trial-save");
  const fs::path staging = meet("trial save", folder ? folder->staging().string() : "").front();
  reserve(staging / rank_file_name(static_cast<std::size_t>(assembly_.rank())), bytes);
  meet("trial saved", "");
}

void CheckpointSaver::begin(const SavePlace& place, const Progress& progress, const SavedSums& sums) {
  if (begun_) finish();
  save_ = {place, progress};
  if (assembly_.rank() == 0) save_.make_folder();
  save_.staging = meet("save", save_.folder ? save_.folder->staging().string() : "").front();
  for (const std::string& rank : meet("choices", kernel_choices(assembly_))) save_.choices.add(rank);
  state_->begin(sums);
  written_ = false;
  pieces_ = 0;
  trouble_ = nullptr;
  begun_ = true;
  thread_ = start_thread<std::jthread>("saving", [this](const std::stop_token& stop) {
    try {
      write(stop);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      trouble_ = std::current_exception();
    }
    changed_.notify_all();
  });
  state_->await_go_on();
}

void CheckpointSaver::finish() {
  if (!begun_) return;
  await_all();
  thread_.join();
  rethrow();
  save_.folder.reset();
  meet("saved", "");
  begun_ = false;
}

// Waits for all ranks. They meet again and again, so that none waits for long in silence: a disk may be slow,
// and only one that writes nothing more counts as hanging.
void CheckpointSaver::await_all() {
  using Clock = std::chrono::steady_clock;
  const std::chrono::seconds limit(assembly_.recipe().integer("run.hang_limit"));
  const std::chrono::milliseconds between =
      limit.count() > 0 ? std::min<std::chrono::milliseconds>(limit / 4, std::chrono::seconds(5))
                        : std::chrono::seconds(5);
  std::vector<std::string> before;
  Clock::time_point since = Clock::now();
  for (;;) {
    std::string mine = "all";
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, others_ ? between : std::chrono::hours(1),
                             [this] { return written_ || trouble_; }))
        mine = std::to_string(pieces_);
      rethrow();
    }
    const std::vector<std::string> all = meet("written", mine);
    const auto slow =
        std::find_if(all.begin(), all.end(), [](const std::string& rank) { return rank != "all"; });
    if (slow == all.end()) return;
    if (all != before) since = Clock::now();
    before = all;
    if (others_ && limit.count() > 0 && Clock::now() - since > limit)
      throw_error(ErrorCode::hang, "rank ", slow - all.begin(), " has written nothing of what it saves for ",
                  limit.count(), " s (run.hang_limit); its disk does not get on");
  }
}

std::optional<fs::path> CheckpointSaver::saved() {
  const std::scoped_lock lock(mutex_);
  rethrow();
  return std::exchange(in_place_, std::nullopt);
}

void CheckpointSaver::rethrow() const {
  if (trouble_) std::rethrow_exception(trouble_);
}

// ------------------------------------------------------------------- the thread

void CheckpointSaver::write(const std::stop_token& stop) {
  const auto wrote = [this] {
    if (saving_) saving_();
    const std::scoped_lock lock(mutex_);
    ++pieces_;
  };
  if (!state_->write(save_.file_of(assembly_.rank()), stop, wrote)) return;
  {
    const std::scoped_lock lock(mutex_);
    written_ = true;
  }
  changed_.notify_all();
  if (!save_.folder || !wait_for_files(stop)) return;
  const fs::path in_place = save_.put_in_place(assembly_, plugins_);
  const std::scoped_lock lock(mutex_);
  in_place_ = in_place;
}

// Waits for all files, each of which appears whole. Returns false if it was asked to stop before they were
// there.
bool CheckpointSaver::wait_for_files(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds pause{2};
  for (int rank = 1; rank < assembly_.mesh().world(); ++rank) {
    const fs::path file = save_.file_of(rank);
    std::error_code ignored;
    while (!fs::exists(file, ignored)) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, pause, [] { return false; });
      if (stop.stop_requested()) return false;
    }
  }
  return true;
}

RunSaves::RunSaves(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate,
                   const std::optional<LoadedCheckpoint>& from, std::vector<SetSize> sets,
                   std::string plugins, Announce others, std::function<void()> saving, std::string base)
    : assembly_(assembly),
      memory_(memory),
      gate_(gate),
      from_(from),
      folder_(run_folder(assembly.recipe())),
      sets_(std::move(sets)),
      plugins_(std::move(plugins)),
      others_(std::move(others)),
      saving_(std::move(saving)),
      base_(std::move(base)) {}

void RunSaves::claim_folder(std::int64_t step) {
  if (assembly_.rank() != 0) return;
  make_folder(folder_);
  if (!run_.id.empty()) return keep_claim(folder_, run_);
  std::optional<Origin> origin;
  if (from_) origin = {from_->run_folder, from_->manifest.run, from_->manifest.progress.step};
  const RunIdentity run = prun::claim_folder(folder_, origin);
  clear_dead_saves(folder_);
  move_damaged();
  check_places_from(folder_, run, step);
  if (assembly_.recipe().flag("eval.keep_best")) check_best_places(folder_);
  saves_ = last_save(folder_, run);
  run_ = run;
}

// Moves the damaged ones of this folder, so that later checkpoints can be saved in their place.
void RunSaves::move_damaged() const {
  if (!from_) return;
  for (const LoadedCheckpoint::Damaged& damaged : from_->damaged)
    if (std::error_code ignored; std::filesystem::equivalent(damaged.folder.parent_path(), folder_, ignored))
      set_aside(damaged.folder, from_->folder);
}

CheckpointSaver& RunSaves::saver() {
  if (!saver_) saver_.emplace(assembly_, memory_, gate_, plugins_, others_, saving_);
  return *saver_;
}

void RunSaves::begin(const Progress& progress, const SavedSums& sums) {
  claim_folder(progress.step);
  const Recipe& recipe = assembly_.recipe();
  const Keep keep{recipe.integer("run.keep"), recipe.integer("run.keep_every")};
  saver().begin({folder_, run_, ++saves_, keep, sets_, base_}, progress, sums);
}

namespace {

// ------------------------------------------------------------------- run start

// ------------------------------------------------------------ resume notes

// Reports what a resumed run takes from its checkpoint.

// Writes a text such as "optimizer.lr from 0.001 to 0.0005, ...".
std::string to_text(const std::vector<Change>& list) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i)
    text += detail::concat(i > 0 ? ", " : "", list[i].key, " from ", list[i].before, " to ", list[i].now);
  if (list.size() > most) text += detail::concat(" and ", list.size() - most, " more");
  return text;
}

bool is_layout(const std::string& key) {
  for (const char* start : {"mesh.", "strategy.", "comm.", "schedule.", "batch.micro"})
    if (key.starts_with(start)) return true;
  return false;
}

// Says whether a change of the key is reported: some keys change nothing of what is computed.
bool is_told(const std::string& key) {
  return !belongs_to_a_place(key) && (!key.starts_with("run.") || key == "run.steps" || key == "run.seed");
}

// Returns names such as "adamw" of plugins that both runs have, in another build.
std::vector<std::string> rebuilt(const std::string& before, const std::string& now) {
  const JsonValue then = parse_json(before, "plugins"), today = parse_json(now, "plugins");
  std::vector<std::string> names;
  for (const JsonValue& a : then.as_array())
    for (const JsonValue& b : today.as_array())
      if (a.at("kind").as_string() == b.at("kind").as_string() &&
          a.at("name").as_string() == b.at("name").as_string() && a.at("kind").as_string() != "observer" &&
          a.at("sha256").as_string() != b.at("sha256").as_string())
        names.push_back(a.at("kind").as_string() + " " + a.at("name").as_string());
  return names;
}

// Counts what this rank's devices chose and had chosen otherwise before, or not at all.
std::size_t other_choices(const Assembly& assembly, const KernelChoices& saved) {
  const std::string before = saved.for_rank(static_cast<std::size_t>(assembly.rank())),
                    now = kernel_choices(assembly);
  if (before.empty()) return 0;
  const std::vector<std::string_view> lines = prun::split(before, '\n'), made = prun::split(now, '\n');
  const std::set<std::string_view> known(lines.begin(), lines.end());
  return static_cast<std::size_t>(
      std::count_if(made.begin(), made.end(), [&](std::string_view line) { return !known.contains(line); }));
}

std::vector<std::string> arithmetic_of(const Assembly& assembly) {
  std::vector<std::string> texts;
  for (const DeviceInfo& device : assembly.device_infos()) texts.emplace_back(device.arithmetic.view());
  return texts;
}

// Says what a resumed run takes from the checkpoint, and what has changed since it was saved: a line each.
// `plugins` is from plugin_record().
std::vector<std::string> resume_notes(const Assembly& assembly, const LoadedCheckpoint& loaded,
                                      const std::string& plugins) {
  const Manifest& manifest = loaded.manifest;
  const Progress& progress = manifest.progress;
  std::vector<std::string> notes = {detail::concat(
      "goes on from ", loaded.folder.string(), ": tensors, step ", progress.step, ", ", progress.updates,
      " updates and ", progress.samples, " samples are its own, all else is the recipe's")};
  std::vector<Change> changed = changes(manifest.recipe, settings_of(assembly.recipe())), layout;
  std::erase_if(changed, [](const Change& change) { return !is_told(change.key); });
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(layout),
               [](const Change& change) { return is_layout(change.key); });
  std::erase_if(changed, [](const Change& change) { return is_layout(change.key); });
  if (!changed.empty()) notes.push_back("changed since it was saved: " + to_text(changed));
  if (!layout.empty())
    notes.push_back("laid out otherwise, so that sums have another order: " + to_text(layout));
  if (const std::vector<std::string> names = rebuilt(manifest.plugins, plugins); !names.empty())
    notes.push_back("other builds of plugins than saved it: " + join(names, ", "));
  if (const std::vector<std::string> now = arithmetic_of(assembly); now != manifest.arithmetic)
    notes.push_back("computes other bits than the device that saved it: " + join(manifest.arithmetic, ", ") +
                    " was, " + join(now, ", ") + " is");
  else if (const std::size_t other = other_choices(assembly, manifest.choices); other > 0)
    notes.push_back(detail::concat("computes other bits: ", other,
                                   " of the kernels that were chosen by trying are others"));
  return notes;
}

// Says what is wrong with the checkpoint, or with those that were to come before it.
std::vector<std::string> resume_warnings(const LoadedCheckpoint& loaded) {
  std::vector<std::string> warnings;
  if (!loaded.note.empty()) warnings.push_back(loaded.note);
  for (const LoadedCheckpoint::Damaged& damaged : loaded.damaged)
    warnings.push_back(detail::concat("the checkpoint ", damaged.folder.string(), " cannot be used (",
                                      damaged.why, "); going on from the one before it, ",
                                      loaded.folder.string()));
  return warnings;
}

}  // namespace

RunStart::RunStart(const Assembly& assembly, const PlanMemory& memory, PluginHost& plugins,
                   const Announce& others, const LossScaler& scaler)
    : assembly_(assembly) {
  if (assembly.recipe().text("run.resume").empty()) {
    progress_.loss_scale = scaler.begin();
    initialize(memory, plugins);
  } else {
    load(memory, plugins, others);
    progress_.loss_scale = scaler.resumed(progress_.loss_scale);
  }
}

void RunStart::initialize(const PlanMemory& memory, PluginHost& plugins) {
  weights_ = open_start_values(assembly_, plugins);
  prun::initialize(assembly_, memory, weights_.get());
  if (weights_ && assembly_.rank() == 0 && has_base(assembly_.program()))
    base_ = weights_->content(host_threads(assembly_.device_info(), assembly_.mesh().world()));
}

void RunStart::load(const PlanMemory& memory, PluginHost& plugins, const Announce& others) {
  const std::unique_ptr<StartValues> base = open_base(assembly_.recipe(), assembly_.program(), plugins);
  loaded_ = load_checkpoint(assembly_, memory, assembly_.recipe().text("run.resume"), others, base.get());
  progress_ = loaded_->manifest.progress;
  base_ = loaded_->manifest.base;
}

std::vector<std::string> RunStart::notes(const std::string& plugins) const {
  if (loaded_) return resume_notes(assembly_, *loaded_, plugins);
  const std::string& init = assembly_.recipe().text("model.init");
  if (init.empty()) return {};
  return {"parameters start from " + init};
}

std::vector<std::string> RunStart::warnings() const {
  return loaded_ ? resume_warnings(*loaded_) : std::vector<std::string>{};
}

}  // namespace prun
