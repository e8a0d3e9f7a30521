// Writes a run for a program to read: one JSON object a line, of type start, step, evaluation, event or
// finish, and of type lost where a pipe had no room.
//
// A later process of the same run appends: a start record begins its part. Steps done again after a resume
// appear again; the later line counts. `time` is seconds since 1970.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "log_file.hpp"
#include "prun/observer.hpp"

namespace prun::jsonl {

class JsonlObserver final : public Observer {
 public:
  explicit JsonlObserver(const Options& options);

  // All these throw storage when the file cannot be written.
  void start(const RunInfo& info) override;
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void event(EventKind kind, std::string_view message) override;
  void finish(const FinishInfo& info) override;

 private:
  using Clock = std::chrono::steady_clock;
  LogFile& file();
  void flush();

  std::string path_;  // empty: log.jsonl in the run's folder
  std::chrono::duration<double> flush_interval_;
  std::optional<LogFile> file_;
  Clock::time_point flushed_at_;
  // These describe the run, so that each step's line says by itself how far and how fast it is.
  std::int64_t steps_ = 0;
  double flops_per_token_ = 0, peak_flops_ = 0;
};

}  // namespace prun::jsonl
