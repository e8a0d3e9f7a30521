#include "train/checkpoint/checkpoint_saver.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/thread.hpp"
#include "prun/split_master.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/kernel_choices.hpp"
#include "train/checkpoint/settings.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Takes as much of the disk as a save will.
void reserve(const fs::path& path, std::int64_t bytes) {
  DurableFile file(path);
  file.reserve(bytes);
  file.write("trial");
  file.commit();
}

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes())
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.extent);
  return text;
}

// The floats of two halves that lie one behind the other.
void join_halves(std::span<const std::byte> halves, const WriteBytes& write) {
  constexpr std::size_t at_a_time = std::size_t{1} << 18;
  const std::size_t count = halves.size() / sizeof(float);
  const auto half = [&](std::size_t number) {
    std::uint16_t bits;
    std::memcpy(&bits, halves.data() + number * sizeof bits, sizeof bits);
    return bits;
  };
  std::vector<float> joined;
  for (std::size_t first = 0; first < count; first += joined.size()) {
    joined.resize(std::min(at_a_time, count - first));
    for (std::size_t i = 0; i < joined.size(); ++i)
      joined[i] = joined_halves(half(first + i), half(count + first + i));
    write(std::as_bytes(std::span(joined)));
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(const Assembly& assembly, const PlanMemory& memory, std::string plugins,
                                 Announce others)
    : assembly_(assembly),
      memory_(memory),
      plugins_(std::move(plugins)),
      others_(std::move(others)),
      slices_(assembly.saved_slices()) {
  for (const HeldSlice& held : slices_) bytes_ += held.bytes();
}

CheckpointSaver::~CheckpointSaver() {
  thread_ = {};  // before what it works with
}

std::vector<std::string> CheckpointSaver::meet(std::string_view channel, const std::string& mine) const {
  return others_ ? others_(channel, mine) : std::vector<std::string>{mine};
}

void CheckpointSaver::try_out(const fs::path& run_folder) {
  copy_.emplace(*assembly_.devices().front(), std::max<std::int64_t>(bytes_, 1));
  std::optional<DurableFolder> folder;  // never put in place
  if (assembly_.rank() == 0) folder.emplace(run_folder / "trial-save");
  const fs::path staging = meet("trial save", folder ? folder->staging().string() : "").front();
  reserve(staging / rank_file_name(static_cast<std::size_t>(assembly_.rank())), bytes_);
  meet("trial saved", "");
}

void CheckpointSaver::begin(const SavePlace& place, const Progress& progress) {
  if (begun_) finish();
  place_ = place;
  progress_ = progress;
  if (assembly_.rank() == 0) {
    check_place(place.run_folder, place.run, progress.step);
    clear_dead_saves(place.run_folder);
    folder_ =
        std::make_unique<DurableFolder>(checkpoint_path(place.run_folder, progress.step), Existing::replace);
  }
  staging_ = meet("save", folder_ ? folder_->staging().string() : "").front();
  choices_ = {};
  for (const std::string& rank : meet("choices", kernel_choices(assembly_))) choices_.add(rank);
  copy();
  written_ = false;
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
}

void CheckpointSaver::finish() {
  if (!begun_) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return written_ || trouble_; });
    rethrow();
  }
  meet("written", "");
  thread_.join();
  rethrow();
  folder_.reset();
  meet("saved", "");
  begun_ = false;
}

std::optional<fs::path> CheckpointSaver::saved() {
  const std::scoped_lock lock(mutex_);
  rethrow();
  return std::exchange(in_place_, std::nullopt);
}

void CheckpointSaver::rethrow() const {
  if (trouble_) std::rethrow_exception(trouble_);
}

// ------------------------------------------------------------------- the copy

void CheckpointSaver::copy() {
  if (!copy_) copy_.emplace(*assembly_.devices().front(), std::max<std::int64_t>(bytes_, 1));
  std::byte* to = copy_->data();
  for (const HeldSlice& held : slices_) {
    copy(held, to);
    to += held.bytes();
  }
}

// Training stands still meanwhile: a float that lies in two halves is copied as those, one behind the other.
void CheckpointSaver::copy(const HeldSlice& held, std::byte* to) const {
  const auto bytes = static_cast<std::size_t>(held.bytes());
  if (held.rounded == none)
    return memory_.read(held.value, held.instance, held.at * size_of(held.type), {to, bytes});
  const std::int64_t offset = held.at * size_of(DType::u16);
  memory_.read(held.rounded, held.instance, offset, {to, bytes / 2});
  memory_.read(held.value, held.instance, offset, {to + bytes / 2, bytes / 2});
}

// ------------------------------------------------------------------- the thread

void CheckpointSaver::write(const std::stop_token& stop) {
  std::vector<std::span<const std::byte>> bytes;
  const std::byte* from = copy_->data();
  for (const HeldSlice& held : slices_) {
    bytes.emplace_back(from, static_cast<std::size_t>(held.bytes()));
    from += held.bytes();
  }
  write_slices(staging_ / rank_file_name(static_cast<std::size_t>(assembly_.rank())),
               {slices_.begin(), slices_.end()}, [&](std::size_t number, const WriteBytes& give) {
                 if (slices_[number].rounded != none)
                   join_halves(bytes[number], give);
                 else
                   give(bytes[number]);
               });
  {
    const std::scoped_lock lock(mutex_);
    written_ = true;
  }
  changed_.notify_all();
  if (folder_) put_in_place(stop);
}

void CheckpointSaver::put_in_place(const std::stop_token& stop) {
  if (!wait_for_files(stop)) return;
  DurableFile file(staging_ / manifest_name);
  file.write(to_text(manifest()));
  file.commit();
  folder_->commit_as_latest();
  remove_old_checkpoints(place_.run_folder, place_.run, place_.keep);
  const std::scoped_lock lock(mutex_);
  in_place_ = folder_->target();
}

// Each appears whole. False: told to stop before they were there.
bool CheckpointSaver::wait_for_files(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds pause{2};
  for (int rank = 1; rank < assembly_.mesh().world(); ++rank) {
    const fs::path file = staging_ / rank_file_name(static_cast<std::size_t>(rank));
    std::error_code ignored;
    while (!fs::exists(file, ignored)) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, pause, [] { return false; });
      if (stop.stop_requested()) return false;
    }
  }
  return true;
}

Manifest CheckpointSaver::manifest() const {
  Manifest manifest{place_.run,
                    place_.save,
                    progress_,
                    mesh_text(assembly_.mesh()),
                    {},
                    choices_,
                    settings_of(assembly_.recipe()),
                    plugins_,
                    {},
                    place_.sets};
  for (const DeviceInfo& device : assembly_.device_infos())
    manifest.arithmetic.emplace_back(device.arithmetic.view());
  for (int rank = 0; rank < assembly_.mesh().world(); ++rank)
    manifest.files.push_back(file_record(staging_ / rank_file_name(static_cast<std::size_t>(rank))));
  return manifest;
}

}  // namespace prun
