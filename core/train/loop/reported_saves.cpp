#include "train/loop/reported_saves.hpp"

namespace prun {

// Runs body, and ends the run if its folder is gone: without it a save goes nowhere, or into another one of
// that name.
template <class Body>
void ReportedSaves::in_folder(Body&& body) {
  try {
    body();
  } catch (const Error&) {
    if (folder_) folder_->check();
    throw;
  }
}

void ReportedSaves::try_out() {
  in_folder([&] { trainer_.try_save(); });
}

void ReportedSaves::begin() {
  finish();  // a save that is not reported before the next begins would never be
  time_.count([&] {
    if (folder_) folder_->check();
    in_folder([&] { trainer_.begin_save(); });
    begun_ = trainer_.progress().step;
  });
}

void ReportedSaves::finish() {
  if (begun_ < 0) return;
  time_.count([&] {
    in_folder([&] {
      trainer_.finish_save();
      report_saved();
    });
  });
}

void ReportedSaves::report() {
  in_folder([&] { report_saved(); });
}

void ReportedSaves::report_saved() {
  const auto path = trainer_.saved();
  if (!path) return;
  observers_.event(EventKind::saved, path->string());
  in_place_(*path);
}

}  // namespace prun
