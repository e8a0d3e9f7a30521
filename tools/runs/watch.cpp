#include "runs/watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "launch/rank_process.hpp"
#include "runs/log.hpp"
#include "runs/run_list.hpp"
#include "runs/words.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- watch

constexpr std::size_t shown_events = 5, shown_ranks = 16, longest_line = 400;

// /proc's files have no size to ask for.
std::string proc_text(std::int64_t pid, const char* name) {
  std::ifstream file(detail::concat("/proc/", pid, "/", name));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::int64_t> children_of(std::int64_t pid) {
  std::vector<std::int64_t> children;
  std::istringstream words(proc_text(pid, detail::concat("task/", pid, "/children").c_str()));
  for (std::int64_t child = 0; words >> child;) children.push_back(child);
  return children;
}

// Returns the number in the first word that rank_title() gave the process, or -1 where it is no rank.
int rank_number(std::int64_t pid) {
  const std::string line = proc_text(pid, "cmdline");
  int rank = -1, world = 0;
  return std::sscanf(line.c_str(), "prun %d/%d", &rank, &world) == 2 ? rank : -1;
}

RankSeen seen(int rank, std::int64_t pid) {
  std::istringstream pages(proc_text(pid, "statm"));
  std::int64_t whole = 0, resident = 0;
  pages >> whole >> resident;
  return {rank, pid, process_state(static_cast<pid_t>(pid)), resident * ::sysconf(_SC_PAGESIZE)};
}

template <class Value>
std::vector<double> values_of(const RunLog& log, Value&& value) {
  std::vector<double> values;
  for (const LoggedStep& step : log.steps) values.push_back(value(step));
  return values;
}

// Returns the median of the last fifty steps, so that it follows changes.
double recent_step_seconds(const RunLog& log) {
  RunLog recent;
  const std::size_t count = std::min<std::size_t>(50, log.steps.size());
  recent.steps.assign(log.steps.end() - static_cast<std::ptrdiff_t>(count), log.steps.end());
  return step_seconds_at(recent, 0.5);
}

std::string head_text(const RunLog& log, const RunStatus& status, double now) {
  const std::int64_t step = log.steps.empty() ? 0 : log.steps.back().step;
  std::string text = printable(log.start() ? log.start()->name : "", 40) + "  " + status.state;
  if (status.holder) text += detail::concat(" (pid ", status.holder->pid, " on ", status.holder->host, ")");
  text += detail::concat("  step ", step, "/", log.steps_to_do);
  const double seconds = recent_step_seconds(log);
  if (goes_on(status) && seconds > 0)
    text += "  eta " +
            duration_word(seconds * static_cast<double>(std::max<std::int64_t>(0, log.steps_to_do - step)));
  return text + "  last word " + duration_word(now - log.last_time()) + " ago\n";
}

std::string steps_text(const RunLog& log, const WatchScreen& screen) {
  if (log.steps.empty()) return "no step has ended yet\n";
  const LoggedStep& last = log.steps.back();
  const double seconds = recent_step_seconds(log);
  const std::size_t letters = std::min<std::size_t>(60, screen.columns > 30 ? screen.columns - 30 : 8);
  const auto losses = values_of(log, [](const LoggedStep& step) { return step.loss; });
  const auto rates = values_of(log, [](const LoggedStep& step) { return step.tokens_per_second; });
  std::string text = format("loss      %-10s ", number_word(last.loss).c_str()) +
                     sparkline(losses, letters, screen.utf8) + "\n";
  text += format("tokens/s  %-10s ", rate_word(last.tokens_per_second).c_str()) +
          sparkline(rates, letters, screen.utf8) + "\n";
  text += "step      " + duration_word(seconds) + " | grad " + number_word(last.grad_norm) + " | lr " +
          number_word(last.lr);
  if (last.mfu > 0) text += " | mfu " + percent_word(last.mfu);
  for (auto step = log.steps.rbegin(); step != log.steps.rend(); ++step)
    if (step->exposed_seconds >= 0 && step->seconds > 0) {
      text += " | comm " + percent_word(step->exposed_seconds / step->seconds);
      break;
    }
  if (last.watts > 0)
    text += format(" | %.0f W %.0f MHz %.2f mJ/tok", last.watts, last.clock_mhz, 1e3 * last.joules_per_token);
  return text + (last.kept ? "" : " | update skipped") + "\n";
}

std::string ranks_text(const std::vector<RankSeen>& ranks) {
  std::vector<std::vector<std::string>> rows = {{"rank", "pid", "state", "memory"}};
  for (const RankSeen& rank : ranks)
    if (rows.size() <= shown_ranks)
      rows.push_back({std::to_string(rank.rank), std::to_string(rank.pid), std::string(1, rank.state),
                      size_text(rank.resident_bytes)});
  std::string text = ranks.empty() ? "" : columns_text(rows);
  if (ranks.size() > shown_ranks) text += detail::concat("and ", ranks.size() - shown_ranks, " more\n");
  return text;
}

std::string events_text(const RunLog& log, double now) {
  std::string text;
  const std::size_t first = log.events.size() - std::min(log.events.size(), shown_events);
  for (std::size_t i = first; i < log.events.size(); ++i) {
    const LoggedEvent& event = log.events[i];
    const std::string line = duration_word(now - event.time) + " ago  " + event.kind + ": " + event.message;
    text += printable(line, longest_line) + "\n";
  }
  return text;
}

}  // namespace

std::vector<RankSeen> ranks_seen(const RunHolder& holder) {
  if (!holder.alive) return {};
  std::vector<RankSeen> ranks;
  for (const std::int64_t child : children_of(holder.pid))
    if (const int rank = rank_number(child); rank >= 0) ranks.push_back(seen(rank, child));
  if (ranks.empty()) ranks.push_back(seen(0, holder.pid));
  std::sort(ranks.begin(), ranks.end(), [](const RankSeen& a, const RankSeen& b) { return a.rank < b.rank; });
  return ranks;
}

bool goes_on(const RunStatus& status) {
  return status.holder && (status.holder->alive || !status.holder->here);
}

std::string watch_text(const RunLog& log, const RunStatus& status, const std::vector<RankSeen>& ranks,
                       const WatchScreen& screen) {
  const std::string whole = head_text(log, status, screen.now) + steps_text(log, screen) + ranks_text(ranks) +
                            events_text(log, screen.now);
  std::string text;
  for (const std::string_view line : split(std::string_view(whole).substr(0, whole.size() - 1), '\n'))
    text += printable(line, screen.columns) + "\n";
  return text;
}

namespace {

// ------------------------------------------------------------------- watch verb
// Implements prun watch: it follows a run that was started elsewhere.

constexpr std::int64_t watched_bytes = 256 << 10;
constexpr std::size_t otherwise_columns = 200;
constexpr auto between_looks = std::chrono::seconds(1);

std::string picture(const RunLog& log, const RunStatus& status) {
  return watch_text(log, status, status.holder ? ranks_seen(*status.holder) : std::vector<RankSeen>(),
                    {columns(otherwise_columns), speaks_utf8(), now_seconds()});
}

void watch_on_terminal(const std::filesystem::path& folder, LogFollower& follower) {
  for (std::ptrdiff_t lines = 0;;) {
    follower.go_on();
    const RunStatus status = status_of(folder, follower.log());
    const std::string text = picture(follower.log(), status);
    if (lines > 0) print_as_it_is("\033[" + std::to_string(lines) + "A\033[J", stdout);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    lines = std::count(text.begin(), text.end(), '\n');
    if (!goes_on(status)) return;
    std::this_thread::sleep_for(between_looks);
  }
}

// Where no screen shows changes, one look is enough.
int watch_command(const Arguments& arguments) {
  const std::filesystem::path file = log_of(arguments.words[0]), folder = file.parent_path();
  LogFollower follower(file, watched_bytes);
  const char* const terminal = std::getenv("TERM");
  if (::isatty(STDOUT_FILENO) == 1 && terminal && std::string_view(terminal) != "dumb") {
    watch_on_terminal(folder, follower);
    return 0;
  }
  std::fputs(picture(follower.log(), status_of(folder, follower.log())).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> watch_verb() {
  return {{"watch",
           "RUN",
           "a run that was started elsewhere, as it goes on: curves, rates, ranks, what happened",
           {},
           watch_command}};
}

}  // namespace prun
