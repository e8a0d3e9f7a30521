#include "train/checkpoint/checkpoint_saver.hpp"

#include <algorithm>
#include <chrono>

#include "base/thread.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/kernel_choices.hpp"

namespace prun {
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

}  // namespace prun
