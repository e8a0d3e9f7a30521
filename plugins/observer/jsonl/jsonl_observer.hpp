// Writes a run for a program to read: one JSON object a line, of type start, step, evaluation, event or
// finish, and of type lost where a pipe had no room.
//
// A later process of the same run appends: a start record begins its part. Steps done again after a resume
// appear again; the later line counts. `time` is seconds since 1970.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "outlet.hpp"
#include "prun/observer.hpp"

namespace prun::jsonl {

// ------------------------------------------------------------------- log file
// Is a file that lines are appended to, each with one write(2), or a pipe that takes what it has room for.

// Says whether a path may lead elsewhere: a path that the user names may, a name in the run's folder may not.
enum class Links { followed, refused };

class LogFile {
 public:
  // Makes missing folders, appends to a file that is there. A last line that a killed process left unfinished
  // is ended first, so that it spoils no other. All functions here throw storage, naming the path.
  explicit LogFile(std::string path, Links links = Links::followed);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // A line into a pipe or terminal that stands still is not written but counted; before the next line that is
  // written stands {"type":"lost","lines":N}.
  void append(std::string_view line);
  // Returns when what was appended is on the disk, so that it outlives a crash of the machine.
  void flush();

 private:
  // Owns the descriptor from here on, whatever the public constructor still throws.
  LogFile(std::string path, int descriptor);
  [[noreturn]] void fail(const char* action) const;
  bool ends_within_line() const;
  void expect_alone() const;
  void expect_only_name() const;
  void expect_named() const;
  void offer(std::string_view line);
  std::string lost_lines() const;  // the record of those lines

  std::string path_;
  int descriptor_;
  std::optional<observer::Outlet> outlet_;  // is used for pipes and terminals
  std::int64_t lost_ = 0;
  bool within_line_ = false;
};

// ------------------------------------------------------------------- jsonl observer

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
