// Implements prun watch: it follows a run that was started elsewhere.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "runs/run_list.hpp"
#include "runs/watch.hpp"

namespace prun {
namespace {

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
