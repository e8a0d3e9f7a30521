// Lets a run save itself between steps: counts the time for which training pauses, reports what is in place,
// and ends the run if its folder is gone.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "train/checkpoint/run_folder.hpp"
#include "train/loop/run_report.hpp"

namespace prun {

class ReportedSaves {
 public:
  // `in_place` is called for each checkpoint that has been reported.
  using InPlace = std::function<void(const std::filesystem::path& checkpoint)>;
  ReportedSaves(Trainer& trainer, Observers& observers, InPlace in_place)
      : trainer_(trainer), observers_(observers), in_place_(std::move(in_place)) {}

  // Must be called on the first rank once the folder is the run's: from then on it must stay.
  void watch_folder() { folder_.emplace(trainer_.folder()); }
  // Finds what would stop saves, before the first step.
  void try_out();

  void begin();
  // Waits until the save that was begun last is in place, if one was.
  void finish();
  void report();

  // Returns the step of the last save; -1: there was none.
  std::int64_t begun() const { return begun_; }
  // Returns the seconds for which training paused since the last call.
  double take_seconds() { return time_.take(); }

 private:
  void report_saved();
  template <class Body>
  void in_folder(Body&& body);

  Trainer& trainer_;
  Observers& observers_;
  InPlace in_place_;
  std::int64_t begun_ = -1;
  std::optional<FolderInPlace> folder_;  // set on the first rank
  StandStillTime time_;
};

}  // namespace prun
