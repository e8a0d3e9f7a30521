#include "tensorboard_observer.hpp"

#include <chrono>

namespace prun::tensorboard {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorboardObserver::TensorboardObserver(const Options& options) : path_(options.text("path")) {}

// Another process of the run writes another file: steps that it does again replace those of the file before.
void TensorboardObserver::start(const RunInfo& info) {
  const double time = now();
  file_.emplace(path_.empty() ? std::string(info.folder.view()) + "/tensorboard" : path_, time);
  file_->add(version_event(time));
  if (info.first_step > 1) file_->add(restart_event(time, info.first_step));
  rates_ = {info.flops_per_token, info.peak_flops};
}

void TensorboardObserver::add(std::int64_t step, const Scalars& scalars) {
  PRUN_CHECK(file_, "a record before the run has started");
  if (!scalars.empty()) file_->add(scalars_event(now(), step, scalars));
}

void TensorboardObserver::step(const StepInfo& info) {
  last_step_ = info.step;
  add(info.step, scalars_of(info, rates_));
}

void TensorboardObserver::evaluation(const EvaluationInfo& info) { add(info.step, scalars_of(info)); }

void TensorboardObserver::finish(const FinishInfo& info) { add(last_step_, scalars_of(info)); }

}  // namespace prun::tensorboard
