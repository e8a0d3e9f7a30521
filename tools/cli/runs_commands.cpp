// runs, watch, diff: looking at runs that were started elsewhere.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "prun/error.hpp"
#include "runs/diff.hpp"
#include "runs/run_list.hpp"
#include "runs/watch.hpp"

namespace prun {
namespace {

constexpr std::int64_t watched_bytes = 256 << 10;
constexpr std::size_t otherwise_columns = 200;
constexpr auto between_looks = std::chrono::seconds(1);

bool speaks_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    const std::string_view locale = value;
    return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos;
  }
  return false;
}

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

}  // namespace

int runs_command(const Arguments& arguments) {
  const std::vector<RunRow> rows = list_runs(arguments.words.empty() ? "runs" : arguments.words[0]);
  const std::string text = arguments.has("--json") ? runs_json(rows) + "\n" : runs_text(rows, now_seconds());
  std::fputs(text.c_str(), stdout);
  return 0;
}

// Where nobody sees a screen change, one look is what is wanted.
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

int diff_command(const Arguments& arguments) {
  const RunDifference difference = compare_runs(arguments.words[0], arguments.words[1]);
  const std::string text = arguments.has("--json") ? to_json(difference) + "\n" : to_text(difference);
  std::fputs(text.c_str(), stdout);
  return difference.differ ? 1 : 0;
}

}  // namespace prun
