// Writes one record for each call.
#include "jsonl_observer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "prun/error.hpp"
#include "prun/json_writer.hpp"
#include "tally_summary.hpp"

namespace prun::jsonl {
namespace {

// ------------------------------------------------------------------- log file
// Uses O_APPEND, write and fdatasync.

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, path, ": its folder cannot be made (", error.message(),
                "); give the log another path");
}

int open_to_append(const std::string& path, Links links) {
  make_folder_of(path);
  const int follow = links == Links::refused ? O_NOFOLLOW : 0;
  return ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | follow, 0666);
}

}  // namespace

LogFile::LogFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  if (descriptor_ < 0) fail("opened");
}

LogFile::LogFile(std::string path, Links links) : LogFile(path, open_to_append(path, links)) {
  if (links == Links::refused) expect_only_name();
  expect_alone();
  within_line_ = ends_within_line();
  if (observer::Outlet::may_stand_still(descriptor_)) outlet_.emplace(descriptor_, path_);
}

LogFile::~LogFile() {
  if (lost_ > 0) {
    outlet_->settle();
    outlet_->put(lost_lines());
  }
  ::close(descriptor_);
}

void LogFile::append(std::string_view line) {
  if (outlet_) return offer(line);
  expect_named();
  const std::string whole = (within_line_ ? "\n" : "") + std::string(line) + "\n";
  std::string_view left = whole;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno != EINTR) fail("written");
    if (written <= 0) continue;
    left.remove_prefix(static_cast<std::size_t>(written));
    within_line_ = !left.empty();
  }
}

void LogFile::offer(std::string_view line) {
  lost_ = outlet_->put(lost_lines() + std::string(line) + "\n") ? 0 : lost_ + 1;
}

std::string LogFile::lost_lines() const {
  return lost_ > 0
             ? JsonWriter().begin_object().member("type", "lost").member("lines", lost_).end_object().take() +
                   "\n"
             : "";
}

void LogFile::flush() {
  // Pipes and the like have nothing to sync and say EINVAL.
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) fail("flushed");
}

// Throws where the file has lost its name: nobody would read its lines.
void LogFile::expect_named() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (S_ISREG(facts.st_mode) && facts.st_nlink == 0)
    throw_error(
        ErrorCode::storage, path_,
        ": the log was removed while the run wrote into it; leave the run's folder alone until it ends");
}

// Throws where the file has another name: lines appended here would be appended to a file elsewhere.
void LogFile::expect_only_name() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (S_ISREG(facts.st_mode) && facts.st_nlink > 1)
    throw_error(ErrorCode::bad_input, path_,
                " has another name as well, and what is written here would change that file; put a copy in "
                "its place");
}

// Two writers of every step would look like steps done twice. A file system may know no locks.
void LogFile::expect_alone() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (S_ISREG(facts.st_mode) && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw_error(ErrorCode::bad_input, path_,
                ": another observer or run writes into this log; leave one out or give it another path");
}

void LogFile::fail(const char* action) const {
  const int error = errno;
  throw_error(ErrorCode::storage, path_, ": the log cannot be ", action, " (", std::strerror(error),
              "); free space there or give the log another path");
}

bool LogFile::ends_within_line() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("examined");
  if (!S_ISREG(facts.st_mode) || facts.st_size == 0) return false;
  char last = '\n';
  if (::pread(descriptor_, &last, 1, facts.st_size - 1) != 1) fail("read");
  return last != '\n';
}

namespace {

// ------------------------------------------------------------------- jsonl observer

// Begins a line. JSON has no word for numbers that are not finite: these become the strings "nan", "inf" and
// "-inf", so that a reader sees which it was.
JsonWriter record(const char* type) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  JsonWriter line(NonFinite::write_text, BrokenText::replace);
  line.begin_object().member("type", type).member("time", static_cast<double>(milliseconds) / 1000);
  return line;
}

const char* name_of(EventKind kind) {
  switch (kind) {
    case EventKind::note: return "note";
    case EventKind::warning: return "warning";
    case EventKind::saved: return "saved";
    case EventKind::stopped: return "stopped";
    case EventKind::failed: return "failed";
  }
  return "?";
}

// Reads the step of a checkpoint's folder, ".../step-00000100": training has gone on meanwhile.
std::optional<std::int64_t> step_of(std::string_view checkpoint) {
  constexpr std::string_view start = "/step-";
  const std::size_t at = checkpoint.rfind(start);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = checkpoint.substr(at + start.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return step;
}

std::string path_in(std::string_view folder) {
  if (folder.empty())
    throw_error(ErrorCode::storage,
                "the run has no folder to hold log.jsonl; set path of the jsonl observer");
  return std::string(folder) + "/log.jsonl";
}

// Writes a member with a number of each layer.
template <class Number>
void write_layers(JsonWriter& line, std::string_view name, const TallyInfo& tally, Number&& number) {
  line.name(name).begin_array();
  for (std::int64_t layer = 0; layer < tally.layers; ++layer) line.value(number(layer));
  line.end_array();
}

void write_tally(JsonWriter& line, const TallyInfo& tally) {
  line.name(tally.name.view()).begin_object();
  if (is_listed_whole(tally)) {
    const std::int64_t columns = columns_of(tally);
    for (std::int64_t column = 0; column < columns; ++column)
      write_layers(line, std::to_string(column), tally,
                   [&](std::int64_t layer) { return tally.numbers.data[layer * columns + column]; });
  } else {
    const auto write = [&](const char* name, double TallySummary::*part) {
      write_layers(line, name, tally, [&](std::int64_t layer) { return summary_of(tally, layer).*part; });
    };
    write("sum", &TallySummary::sum);
    write("least", &TallySummary::least);
    write("most", &TallySummary::most);
  }
  line.end_object();
}

void write_losses(JsonWriter& line, const char* name, const Array<EvaluatedLoss>& losses) {
  if (losses.size == 0) return;
  line.name(name).begin_object();
  for (const EvaluatedLoss& one : losses)
    line.name(one.name.view())
        .begin_object()
        .member("loss", one.loss)
        .member("targets", one.targets)
        .end_object();
  line.end_object();
}

}  // namespace

JsonlObserver::JsonlObserver(const Options& options)
    : path_(options.text("path")), flush_interval_(options.number("flush_seconds")) {}

LogFile& JsonlObserver::file() {
  PRUN_CHECK(file_, "a record before the start of the run");
  return *file_;
}

void JsonlObserver::flush() {
  file().flush();
  flushed_at_ = Clock::now();
}

void JsonlObserver::start(const RunInfo& info) {
  steps_ = info.steps;
  flops_per_token_ = info.flops_per_token;
  peak_flops_ = info.peak_flops;
  if (path_.empty())
    file_.emplace(path_in(info.folder.view()), Links::refused);
  else
    file_.emplace(path_);
  file_->append(record("start")
                    .member("name", info.name.view())
                    .member("folder", info.folder.view())
                    .member("recipe", info.recipe.view())
                    .member("device", info.device.view())
                    .member("steps", info.steps)
                    .member("first_step", info.first_step)
                    .member("parameters", info.parameters)
                    .member("tokens_per_step", info.tokens_per_step)
                    .member("flops_per_token", info.flops_per_token)
                    .member("peak_flops", info.peak_flops)
                    .member("plan_bytes", info.plan_bytes)
                    .end_object()
                    .take());
  flush();
}

void JsonlObserver::step(const StepInfo& info) {
  JsonWriter line = record("step");
  line.member("step", info.step)
      .member("loss", info.loss)
      .member("grad_norm", info.grad_norm)
      .member("lr", info.lr)
      .member("kept", info.kept)
      .member("targets", info.targets)
      .member("tokens", info.tokens)
      .member("seconds", info.seconds)
      .member("elapsed", info.elapsed)
      .member("steps", steps_);
  if (info.seconds > 0) {
    const double rate = static_cast<double>(info.tokens) / info.seconds;
    line.member("tokens_per_second", rate);
    if (peak_flops_ > 0) line.member("mfu", rate * flops_per_token_ / peak_flops_);
  }
  if (info.loss_scale > 0) line.member("loss_scale", info.loss_scale);
  if (info.save_seconds > 0) line.member("save_seconds", info.save_seconds);
  if (info.compare_seconds > 0) line.member("compare_seconds", info.compare_seconds);
  if (info.exposed_seconds >= 0)
    line.member("exposed_seconds", info.exposed_seconds)
        .member("exposed_share", info.exposed_seconds / info.seconds);
  if (info.watts > 0)
    line.member("watts", info.watts)
        .member("clock_mhz", info.clock_mhz)
        .member("joules_per_token", info.joules / static_cast<double>(info.tokens));
  write_losses(line, "losses", info.losses);
  for (const TallyInfo& tally : info.tallies) write_tally(line, tally);
  file().append(line.end_object().take());
  if (Clock::now() - flushed_at_ >= flush_interval_) flush();
}

void JsonlObserver::evaluation(const EvaluationInfo& info) {
  JsonWriter line = record("evaluation");
  line.member("step", info.step)
      .member("eval_loss", info.loss)
      .member("targets", info.targets)
      .member("seconds", info.seconds);
  write_losses(line, "sets", info.sets);
  file().append(line.end_object().take());
  flush();
}

void JsonlObserver::event(EventKind kind, std::string_view message) {
  JsonWriter line = record("event");
  line.member("kind", name_of(kind)).member("message", message);
  if (const auto step = kind == EventKind::saved ? step_of(message) : std::nullopt)
    line.member("step", *step);
  file().append(line.end_object().take());
  flush();
}

void JsonlObserver::finish(const FinishInfo& info) {
  JsonWriter line = record("finish");
  line.name("memory").begin_array();
  for (const RankMemory& memory : info.memory) {
    line.begin_object()
        .member("plan_bytes", memory.plan_bytes)
        .member("process_bytes", memory.process_bytes)
        .member("peak_bytes", memory.peak_bytes);
    if (memory.device_bytes > 0)
      line.member("device_plan_bytes", memory.device_plan_bytes)
          .member("device_process_bytes", memory.device_process_bytes)
          .member("device_bytes", memory.device_bytes);
    line.end_object();
  }
  line.end_array();
  if (info.save_seconds > 0) line.member("save_seconds", info.save_seconds);
  file().append(line.end_object().take());
  flush();
}

}  // namespace prun::jsonl
