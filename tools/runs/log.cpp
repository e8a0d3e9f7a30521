#include "runs/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include "base/durable_file.hpp"
#include "base/file_system.hpp"
#include "base/json.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- log line

constexpr std::size_t most_fields = 64;

constexpr std::string_view blanks = " \t\r";

// Returns the first place from `at` on that holds no blank, which other writers put between what JSON is made
// of.
std::size_t past_blanks(std::string_view line, std::size_t at) {
  return std::min(line.find_first_not_of(blanks, at), line.size());
}

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

// Returns where the text ends that begins with the quote at `at`: behind its closing quote; 0: it does not
// end.
std::size_t end_of_text(std::string_view line, std::size_t at) {
  for (std::size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      return i + 1;
  }
  return 0;
}

// Returns where a value ends, before the comma or bracket that follows it; 0 where there is none.
std::size_t end_of_value(std::string_view line, std::size_t at) {
  int depth = 0;
  for (std::size_t i = at; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      i = end_of_text(line, i);
      if (i == 0) return 0;
      --i;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (depth > 0 && (c == ']' || c == '}')) {
      --depth;
    } else if (depth == 0 && (c == ',' || c == '}')) {
      return i;
    }
  }
  return 0;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

bool LogLine::parse(std::string_view line) {
  fields_.clear();
  line = without_blanks_behind(line.substr(past_blanks(line, 0)));
  if (line.size() < 2 || line.front() != '{' || line.back() != '}') return false;
  std::size_t at = past_blanks(line, 1);
  if (line[at] == '}') return at + 1 == line.size();
  while (at < line.size() && line[at] == '"' && fields_.size() < most_fields) {
    const std::size_t key = end_of_text(line, at);
    const std::size_t colon = key == 0 ? line.size() : past_blanks(line, key);
    if (colon == line.size() || line[colon] != ':') return false;
    const std::size_t value = past_blanks(line, colon + 1), end = end_of_value(line, value);
    if (end == 0 || end == value) return false;
    fields_.push_back(
        {line.substr(at + 1, key - at - 2), without_blanks_behind(line.substr(value, end - value))});
    if (line[end] == '}') return end + 1 == line.size();
    at = past_blanks(line, end + 1);
  }
  return false;
}

std::string_view LogLine::raw(std::string_view key) const {
  for (const Field& field : fields_)
    if (field.key == key) return field.value;
  return {};
}

std::optional<double> LogLine::number(std::string_view key) const {
  const std::string_view value = raw(key);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value == "\"nan\"") return std::nan("");
  if (value == "\"inf\"") return infinity;
  if (value == "\"-inf\"") return -infinity;
  return number_of<double>(value);
}

std::int64_t LogLine::integer(std::string_view key, std::int64_t fallback) const {
  return number_of<std::int64_t>(raw(key)).value_or(fallback);
}

bool LogLine::flag(std::string_view key, bool fallback) const {
  const std::string_view value = raw(key);
  return value == "true" ? true : value == "false" ? false : fallback;
}

std::string LogLine::text(std::string_view key) const {
  const std::string_view value = raw(key);
  if (value.empty() || value.front() != '"') return "";
  try {
    return parse_json(value, "text").as_string();
  } catch (const Error&) {
    return "";
  }
}

bool LogLine::is(std::string_view key, std::string_view plain_text) const {
  const std::string_view value = raw(key);
  return value.size() == plain_text.size() + 2 && value.front() == '"' &&
         value.substr(1, plain_text.size()) == plain_text;
}

namespace {

// ------------------------------------------------------------------- log

namespace fs = std::filesystem;

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t longest_line = std::size_t{16} << 20;

// Returns the loss of each member of an object of objects.
std::vector<std::pair<std::string, double>> losses_in(std::string_view text, const char* what) {
  std::vector<std::pair<std::string, double>> losses;
  if (text.empty()) return losses;
  const JsonValue by_name = parse_json(text, what);
  for (const JsonMember& one : by_name.as_object().members())
    if (const JsonValue* const loss = one.value.is_object() ? one.value.find("loss") : nullptr;
        loss && (loss->is_integer() || loss->kind() == JsonKind::real))
      losses.emplace_back(one.name, loss->as_double());
  return losses;
}

std::vector<double> numbers_in(const JsonValue& list) {
  std::vector<double> numbers;
  for (const JsonValue& number : list.as_array()) numbers.push_back(number.as_double());
  return numbers;
}

double over_layers(std::string_view tally, const std::vector<double>& layers) {
  const Together how = layers.empty() ? Together::sum : together_of(tally);
  return how == Together::sum       ? std::accumulate(layers.begin(), layers.end(), 0.0)
         : how == Together::largest ? *std::max_element(layers.begin(), layers.end())
                                    : *std::min_element(layers.begin(), layers.end());
}

// The observer lists each layer's numbers by their place where they are few, else their sum, and their least
// and largest over their mean.
void add_tally(const std::string& name, std::string_view text, std::vector<LoggedTally>& tallies) {
  const JsonValue object = parse_json(text, name);
  if (const JsonValue* const most = object.find("most")) {
    const std::vector<double> layers = numbers_in(*most);
    if (!layers.empty()) tallies.push_back({name, "most", *std::max_element(layers.begin(), layers.end())});
    return;
  }
  for (const JsonMember& place : object.as_object().members()) {
    tallies.push_back({name, place.name, over_layers(name, numbers_in(place.value))});
  }
}

// Their names are those of a segment and of what it counts, with a dot between. Another object of such a name
// spoils no step.
std::vector<LoggedTally> tallies_in(const LogLine& line) {
  std::vector<LoggedTally> tallies;
  line.each_object([&](std::string_view name, std::string_view text) {
    if (name.find('.') == std::string_view::npos) return;
    try {
      add_tally(std::string(name), text, tallies);
    } catch (const Error&) {
      return;
    }
  });
  return tallies;
}

LoggedEvaluation evaluation_of(const LogLine& line) {
  LoggedEvaluation evaluation{line.number("time", 0), line.number("eval_loss", 0), line.number("seconds", 0),
                              line.integer("step"), line.integer("targets")};
  for (auto& set : losses_in(line.raw("sets"), "sets")) evaluation.more.push_back(std::move(set));
  return evaluation;
}

LoggedStart start_of(const LogLine& line) {
  LoggedStart start;
  start.time = line.number("time", 0);
  start.name = line.text("name");
  start.folder = line.text("folder");
  start.device = line.text("device");
  start.steps = line.integer("steps");
  start.first_step = line.integer("first_step", 1);
  start.parameters = line.integer("parameters");
  start.tokens_per_step = line.integer("tokens_per_step");
  start.plan_bytes = line.integer("plan_bytes");
  start.flops_per_token = line.number("flops_per_token", 0);
  start.peak_flops = line.number("peak_flops", 0);
  return start;
}

// Older logs have the tokens of a step at their start alone.
LoggedStep step_of(const LogLine& line, const LoggedStart* start) {
  LoggedStep step;
  step.step = line.integer("step");
  step.targets = line.integer("targets");
  step.time = line.number("time", 0);
  step.loss = line.number("loss", 0);
  step.grad_norm = line.number("grad_norm", 0);
  step.lr = line.number("lr", 0);
  step.loss_scale = line.number("loss_scale", 0);
  step.seconds = line.number("seconds", 0);
  step.exposed_seconds = line.number("exposed_seconds", -1);
  step.save_seconds = line.number("save_seconds", 0);
  step.compare_seconds = line.number("compare_seconds", 0);
  step.kept = line.flag("kept", true);
  const double rate =
      start && step.seconds > 0 ? static_cast<double>(start->tokens_per_step) / step.seconds : 0;
  step.tokens_per_second = line.number("tokens_per_second", rate);
  step.mfu = line.number("mfu", 0);
  step.losses = losses_in(line.raw("losses"), "losses");
  step.tallies = tallies_in(line);
  step.watts = line.number("watts", 0);
  step.clock_mhz = line.number("clock_mhz", 0);
  step.joules_per_token = line.number("joules_per_token", 0);
  return step;
}

LoggedFinish finish_of(const LogLine& line) {
  LoggedFinish finish;
  finish.time = line.number("time", 0);
  finish.save_seconds = line.number("save_seconds", 0);
  const std::string_view memory = line.raw("memory");
  if (memory.empty()) return finish;
  const JsonValue ranks = parse_json(memory, "memory");
  const auto bytes = [](const JsonValue& rank, std::string_view name) {
    const JsonValue* found = rank.find(name);
    return found ? found->as_int64() : 0;
  };
  for (const JsonValue& rank : ranks.as_array())
    finish.memory.push_back({bytes(rank, "plan_bytes"), bytes(rank, "process_bytes"),
                             bytes(rank, "peak_bytes"), bytes(rank, "device_plan_bytes"),
                             bytes(rank, "device_process_bytes"), bytes(rank, "device_bytes")});
  return finish;
}

// Training goes on while it saves, and older logs say by the checkpoint's name alone which step that was.
LoggedEvent event_of(const LogLine& line, const RunLog& log) {
  LoggedEvent event{line.number("time", 0), log.steps.empty() ? 0 : log.steps.back().step, line.text("kind"),
                    line.text("message")};
  if (event.kind == "saved")
    event.step = line.integer("step", prun::step_of(fs::path(event.message)).value_or(event.step));
  return event;
}

void take_step(const LoggedStep& step, RunLog& log) {
  while (!log.steps.empty() && log.steps.back().step >= step.step) {
    ++log.redone_steps;
    log.redone_seconds += log.steps.back().seconds;
    log.steps.pop_back();
  }
  log.steps.push_back(step);
}

void take_start(LoggedStart start, RunLog& log) {
  log.finish.reset();
  log.steps_to_do = start.steps;
  const double time = start.time;
  log.parts.push_back({std::move(start), time});
}

// A line of an unknown type is ignored; a line that is no record is counted.
void take(std::string_view text, LogLine& line, RunLog& log) {
  if (text.empty()) return;
  if (!line.parse(text) || line.raw("type").empty()) {
    ++log.unreadable;
    return;
  }
  if (line.is("type", "step")) {
    take_step(step_of(line, log.start()), log);
    log.steps_to_do = line.integer("steps", log.steps_to_do);
  } else if (line.is("type", "start"))
    take_start(start_of(line), log);
  else if (line.is("type", "evaluation"))
    log.evaluations.push_back(evaluation_of(line));
  else if (line.is("type", "event"))
    log.events.push_back(event_of(line, log));
  else if (line.is("type", "finish"))
    log.finish = finish_of(line);
  if (!log.parts.empty()) log.parts.back().end = line.number("time", log.parts.back().end);
}

// A line may hold anything: a line that cannot be read must spoil no other.
void take_guarded(std::string_view text, LogLine& line, RunLog& log) {
  try {
    take(text, line, log);
  } catch (const Error&) {
    ++log.unreadable;
  }
}

FileDescriptor open_log(const fs::path& file) {
  FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!opened.is_open() || ::fstat(opened.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
    throw_error(ErrorCode::not_found, file.string(), " is no log that can be read; a run writes one unless ",
                "its recipe says run.log = false");
  return opened;
}

std::int64_t size_of(const FileDescriptor& file) {
  struct stat facts {};
  return ::fstat(file.get(), &facts) == 0 ? facts.st_size : 0;
}

// Calls body(line) for each whole line from byte `at` on, and returns where the last of them ends.
std::int64_t each_line(const FileDescriptor& file, const fs::path& path, std::int64_t at,
                       const std::function<void(std::string_view)>& body) {
  std::string buffer;
  std::size_t held = 0;  // counts bytes of an unfinished line at the buffer's front
  for (;;) {
    buffer.resize(held + chunk_bytes);
    const ssize_t count = ::pread(file.get(), buffer.data() + held, chunk_bytes,
                                  static_cast<off_t>(at) + static_cast<off_t>(held));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_storage_error("read", path, errno);
    if (count == 0 || held > longest_line) return at;
    const std::string_view text(buffer.data(), held + static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
      body(text.substr(begin, end - begin));
    at += static_cast<std::int64_t>(begin);
    held = text.size() - begin;
    buffer.erase(0, begin);
  }
}

// Takes the log's first line, where that is a start.
void take_first_start(const FileDescriptor& file, LogLine& line, RunLog& log) {
  char text[16384];
  const ssize_t count = ::pread(file.get(), text, sizeof text, 0);
  const std::string_view read(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  const std::size_t end = read.find('\n');
  if (end != std::string_view::npos && line.parse(read.substr(0, end)) && line.is("type", "start"))
    take_start(start_of(line), log);
}

// Returns the place up to which the file was read.
std::int64_t read_tail(const fs::path& path, std::int64_t bytes, RunLog& log) {
  const FileDescriptor file = open_log(path);
  const std::int64_t size = size_of(file);
  LogLine line;
  if (size > bytes) take_first_start(file, line, log);
  bool whole = size <= bytes;  // the first line of a tail is part of one
  return each_line(file, path, std::max<std::int64_t>(0, size - bytes), [&](std::string_view text) {
    if (std::exchange(whole, true)) take_guarded(text, line, log);
  });
}

}  // namespace

Together together_of(std::string_view tally) {
  if (tally.ends_with(".least")) return Together::least;
  for (const char* end : {".share", ".largest", ".rows"})
    if (tally.ends_with(end)) return Together::largest;
  return Together::sum;
}

fs::path log_of(const fs::path& run) {
  std::error_code ignored;
  fs::path file = fs::is_directory(run, ignored) ? run / "log.jsonl" : run;
  if (!fs::exists(file, ignored))
    throw_error(ErrorCode::not_found, "there is no ", file.string(),
                "; give the folder of a run, which has one unless its recipe says run.log = false",
                fs::exists(run, ignored) ? std::string() : did_you_mean_beside(run));
  return file;
}

RunLog read_log(const fs::path& path) {
  const FileDescriptor file = open_log(path);
  RunLog log;
  LogLine line;
  each_line(file, path, 0, [&](std::string_view text) { take_guarded(text, line, log); });
  return log;
}

RunLog read_log_tail(const fs::path& path, std::int64_t bytes) {
  RunLog log;
  read_tail(path, bytes, log);
  return log;
}

LogFollower::LogFollower(fs::path file, std::int64_t bytes) : file_(std::move(file)) {
  read_ = read_tail(file_, bytes, log_);
}

// A file that has become shorter is another run's.
bool LogFollower::go_on() {
  const FileDescriptor file = open_log(file_);
  const std::int64_t size = size_of(file);
  if (size == read_) return false;
  if (size < read_) {
    log_ = {};
    read_ = 0;
  }
  LogLine line;
  const std::int64_t before = read_;
  read_ = each_line(file, file_, read_, [&](std::string_view text) { take_guarded(text, line, log_); });
  return read_ != before;
}

// ------------------------------------------------------------------- text file

std::string text_in(const std::filesystem::path& file, std::int64_t most) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return "";
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const std::int64_t size = in.tellg();
  if (size <= 0) return "";
  std::string text(static_cast<std::size_t>(std::min(size, most)), '\0');
  in.seekg(size - static_cast<std::int64_t>(text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

namespace {

// ------------------------------------------------------------------- time account

// Sums the time from when a process of the run began until its first step did.
double starting_seconds(const RunLog& log) {
  double sum = 0;
  for (const LoggedPart& part : log.parts) {
    const auto first = std::find_if(log.steps.begin(), log.steps.end(),
                                    [&](const LoggedStep& step) { return step.time >= part.start.time; });
    if (first != log.steps.end() && first->time <= part.end)
      sum += std::max(0.0, first->time - first->seconds - part.start.time);
  }
  return sum;
}

double down_seconds(const RunLog& log) {
  double sum = 0;
  for (std::size_t i = 1; i < log.parts.size(); ++i)
    sum += std::max(0.0, log.parts[i].start.time - log.parts[i - 1].end);
  return sum;
}

double finite(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

}  // namespace

TimeAccount account_of(const RunLog& log) {
  TimeAccount account;
  account.wall = std::max(0.0, log.last_time() - log.first_time());
  double kept = 0, masked = 0, exposed = 0, measured = 0, saving = 0, comparing = 0, evaluating = 0;
  for (const LoggedStep& step : log.steps) {
    (step.kept ? kept : masked) += finite(step.seconds);
    saving += finite(step.save_seconds);
    comparing += finite(step.compare_seconds);
    if (step.exposed_seconds < 0) continue;
    ++account.measured;
    exposed += finite(step.exposed_seconds);
    measured += finite(step.seconds);
  }
  for (const LoggedEvaluation& evaluation : log.evaluations) evaluating += finite(evaluation.seconds);
  if (log.finish) saving += finite(log.finish->save_seconds);
  const double share = measured > 0 ? std::min(1.0, exposed / measured) : 0;
  account.shares = {
      {"computing", kept * (1 - share), "steps that count, without exposed communication"},
      {"exposed communication", kept * share,
       "computing held up by exchanges on the first rank: the share of the measured steps, for all"},
      {"saving", saving, "training stood still for a save"},
      {"comparing replicas", comparing, "training stood still to compare ranks"},
      {"evaluating", evaluating, "the loss on validation data"},
      {"lost", masked + finite(log.redone_seconds),
       "steps done again after a resume, and steps whose update was skipped"},
      {"starting", starting_seconds(log), "from a process' start record to its first step"},
      {"down", down_seconds(log), "from the last line of one process to the first of the next"},
  };
  double sum = 0;
  for (const TimeShare& named : account.shares) sum += named.seconds;
  account.shares.push_back({"idle", std::max(0.0, account.wall - sum), "between steps, for anything else"});
  return account;
}

double value_at(const RunLog& log, double share, double LoggedStep::*value) {
  std::vector<double> list;
  for (const LoggedStep& step : log.steps)
    if (std::isfinite(step.*value) && step.*value > 0) list.push_back(step.*value);
  if (list.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(std::floor(share * static_cast<double>(list.size() - 1)));
  std::nth_element(list.begin(), list.begin() + at, list.end());
  return list[static_cast<std::size_t>(at)];
}

}  // namespace prun
