// Reads the log of a run, log.jsonl in its folder, while the run may still write, may have been killed within
// a line, or may be another host's. Nothing here touches the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prun/observer.hpp"

namespace prun {

// ------------------------------------------------------------------- log

// Is the start of a process of the run.
struct LoggedStart {
  double time = 0;
  std::string name, folder, device;
  std::int64_t steps = 0, first_step = 1, parameters = 0, tokens_per_step = 0, plan_bytes = 0;
  double flops_per_token = 0, peak_flops = 0;
};

// Says what a tally's numbers are together: their sum or, where its name ends in ".share", ".largest" or
// ".rows" (what a layer needs of a bound, and the bound), the largest of them, and in ".least", the least.
enum class Together { sum, largest, least };
Together together_of(std::string_view tally);

// States one number of what ops have counted in a step (ProgramApi::tally).
struct LoggedTally {
  std::string name;
  // Its place among the numbers that each layer has, of which this is what those of all layers are together;
  // `most` where they are many: how many times a layer's mean its largest is, in the layer where that is
  // most.
  std::string place;
  double value = 0;
};

struct LoggedStep {
  std::int64_t step = 0, targets = 0;
  double time = 0, loss = 0, grad_norm = 0, lr = 0, seconds = 0;
  double exposed_seconds = -1;                            // negative: not measured
  double tokens_per_second = 0, mfu = 0;                  // 0: not known
  double save_seconds = 0, compare_seconds = 0;           // count seconds that training stood still before it
  double watts = 0, clock_mhz = 0, joules_per_token = 0;  // 0: not known
  double loss_scale = 0;                                  // 0: none
  bool kept = true;
  std::vector<std::pair<std::string, double>> losses = {};  // by set and role, where the run told them
  std::vector<LoggedTally> tallies = {};
};

struct LoggedEvaluation {
  double time = 0, loss = 0, seconds = 0;
  std::int64_t step = 0, targets = 0;
  // These were evaluated as well, by their names: the average of the weights, each set.
  std::vector<std::pair<std::string, double>> more = {};
};

struct LoggedEvent {
  double time = 0;
  std::int64_t step = 0;      // was saved, or else is the step after which it was said
  std::string kind, message;  // `kind` is as in EventKind
};

struct LoggedFinish {
  double time = 0, save_seconds = 0;
  std::vector<RankMemory> memory;  // by rank
};

// Goes from a start to the last line before the next one.
struct LoggedPart {
  LoggedStart start;
  double end = 0;
};

struct RunLog {
  std::vector<LoggedPart> parts;
  std::vector<LoggedStep> steps;  // have rising numbers: of a step that was done again the later line counts
  std::vector<LoggedEvaluation> evaluations;
  std::vector<LoggedEvent> events;
  std::optional<LoggedFinish> finish;  // that of the last part
  std::int64_t redone_steps = 0;       // counts steps that gave way to later lines
  double redone_seconds = 0;
  std::int64_t unreadable = 0;   // counts lines
  std::int64_t steps_to_do = 0;  // is what the last line that knows says

  const LoggedStart* start() const { return parts.empty() ? nullptr : &parts.back().start; }
  double first_time() const { return parts.empty() ? 0 : parts.front().start.time; }
  double last_time() const { return parts.empty() ? 0 : parts.back().end; }
};

// Returns the log in a run's folder, or the file itself. Throws not_found where there is none.
std::filesystem::path log_of(const std::filesystem::path& run);

RunLog read_log(const std::filesystem::path& file);
// Reads its last `bytes` bytes alone; a start is taken from the beginning of the file where those hold none.
RunLog read_log_tail(const std::filesystem::path& file, std::int64_t bytes);

// Follows a log that grows from here on. Lines that are not ended yet are left for the next time.
class LogFollower {
 public:
  // Begins with the result of read_log_tail().
  LogFollower(std::filesystem::path file, std::int64_t bytes);
  const RunLog& log() const { return log_; }
  // Returns whether there was something new.
  bool go_on();

 private:
  std::filesystem::path file_;
  std::int64_t read_ = 0;
  RunLog log_;
};

// ------------------------------------------------------------------- log line
// Parses one line of a run's log without building a tree: a log may have millions of them.

// Holds the fields of the object on the line last parsed, in place: the line must outlive them.
class LogLine {
 public:
  // Returns false where the line is no JSON object, or is cut off.
  bool parse(std::string_view line);

  std::string_view raw(std::string_view key) const;  // empty: there is none
  // NaN and infinities are texts there. Returns nothing where there is no such field, or no number.
  std::optional<double> number(std::string_view key) const;
  double number(std::string_view key, double fallback) const { return number(key).value_or(fallback); }
  std::int64_t integer(std::string_view key, std::int64_t fallback = 0) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;  // empty where it is no text
  bool is(std::string_view key, std::string_view plain_text) const;
  // Calls body(key, value) for each field that is an object.
  template <class Body>
  void each_object(const Body& body) const {
    for (const Field& field : fields_)
      if (!field.value.empty() && field.value.front() == '{') body(field.key, field.value);
  }

 private:
  struct Field {
    std::string_view key, value;
  };
  std::vector<Field> fields_;
};

// ------------------------------------------------------------------- text file
// Reads text files of a run's folder, which may change meanwhile.

inline constexpr std::int64_t most_text = std::int64_t{1} << 20;

// Returns a file's text, or its last `most` bytes; it is empty where there is no such file.
std::string text_in(const std::filesystem::path& file, std::int64_t most = most_text);

// ------------------------------------------------------------------- time account
// Accounts for a run's time, as far as its log holds it.

struct TimeShare {
  std::string name;
  double seconds = 0;
  std::string meaning;
};

struct TimeAccount {
  double wall = 0;                // goes from the first line to the last
  std::vector<TimeShare> shares;  // have the whole as their sum
  std::int64_t measured = 0;      // counts steps in which exposed communication was measured
};

TimeAccount account_of(const RunLog& log);

// Returns the quantile of the steps that count; `share` is from 0 to 1. It is 0 where there are none.
double value_at(const RunLog& log, double share, double LoggedStep::*value);
inline double step_seconds_at(const RunLog& log, double share) {
  return value_at(log, share, &LoggedStep::seconds);
}

}  // namespace prun
