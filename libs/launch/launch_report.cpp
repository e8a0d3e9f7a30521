#include "launch/launch_report.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- kernel word

constexpr std::size_t longest_line = 300;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the number after a word, of which these files have one a line.
std::optional<std::int64_t> count_in(const std::string& path, const std::string& word) {
  std::istringstream lines(text_of(path));
  std::string key;
  for (std::int64_t value = 0; lines >> key >> value;)
    if (key == word) return value;
  return {};
}

// Reads the kernel's log, whose records come one by one until there is none; some may have been overwritten
// meanwhile.
std::string log_text(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  char record[8192];
  constexpr std::size_t most = std::size_t{16} << 20;
  while (file.is_open() && text.size() < most) {
    const ssize_t count = ::read(file.get(), record, sizeof record);
    if (count < 0 && (errno == EINTR || errno == EPIPE)) continue;
    if (count <= 0) break;
    text.append(record, static_cast<std::size_t>(count));
  }
  return text;
}

struct GroupFiles {
  std::string events, limit;
};

// Lists the files of both versions of control groups; a container may see its own group as the root.
std::vector<GroupFiles> group_files(const KernelFiles& files) {
  std::vector<GroupFiles> found;
  std::istringstream lines(text_of(files.membership));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string_view> words = split(line, ':');
    if (words.size() != 3) continue;
    for (const std::string& path : {std::string(words[2]), std::string()}) {
      if (words[1].empty())
        found.push_back({files.groups + path + "/memory.events", files.groups + path + "/memory.max"});
      if (words[1] == "memory")
        found.push_back({files.groups + "/memory" + path + "/memory.oom_control",
                         files.groups + "/memory" + path + "/memory.limit_in_bytes"});
    }
  }
  return found;
}

bool has_risen(const std::optional<std::int64_t>& before, const std::optional<std::int64_t>& now) {
  return before && now && *now > *before;
}

std::string limit_text(const std::string& path) {
  const std::string text(trim(text_of(path)));
  constexpr double no_limit = 1e18;  // the old version writes a number that means no limit
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stod(text) > no_limit) return "";
  return "; its limit is " + size_text(std::stod(text)) + ", in " + path;
}

}  // namespace

KernelWord::KernelWord(KernelFiles files) : files_(std::move(files)) {
  group_kills_ = group().kills;
  all_kills_ = count_in(files_.counters, "oom_kill");
}

KernelWord::Group KernelWord::group() const {
  for (const GroupFiles& files : group_files(files_))
    if (const auto kills = count_in(files.events, "oom_kill")) return {files.limit, kills};
  return {};
}

std::optional<std::string> KernelWord::line_about(pid_t pid) const {
  const std::string text = log_text(files_.log), word = detail::concat("Killed process ", pid, " (");
  const std::size_t at = text.rfind(word);
  if (at == std::string::npos) return {};
  return printable(text.substr(at, text.find('\n', at) - at), longest_line);
}

std::string KernelWord::of(pid_t pid) const {
  const std::string lack = "the kernel ended it for want of memory";
  if (const auto line = line_about(pid)) return lack + ": " + *line;
  const Group now = group();
  if (has_risen(group_kills_, now.kills))
    return lack + ": it has ended " + std::to_string(*now.kills - *group_kills_) +
           " of this control group's processes since the start" + limit_text(now.limit);
  if (has_risen(all_kills_, count_in(files_.counters, "oom_kill")))
    return "it may have been for want of memory: since the start the kernel has ended processes of this "
           "machine "
           "for that";
  return "the kernel has counted nobody that it ended for want of memory; somebody sent the signal";
}

// ------------------------------------------------------------------- rank failures

RankFailure& RankFailures::of(int rank, const RankGroup& ranks) {
  if (failures_.empty()) when_it_failed_ = ranks.snapshots();
  for (RankFailure& failure : failures_)
    if (failure.rank == rank) return failure;
  RankFailure& failure = failures_.emplace_back();
  failure.rank = rank;
  const FlightSnapshot flight = ranks[rank].flight.snapshot();
  failure.doing = describe_flight(flight, flight_now_ns());
  failure.exchange = last_exchange(flight);
  failure.at = std::time(nullptr);
  return failure;
}

const RankFailure* RankFailures::first_cause() const {
  for (const RankFailure& failure : failures_)
    if (!failure.consequence) return &failure;
  return nullptr;
}

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return detail::concat("ended with exit code ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = ::sigabbrev_np(signal);
  return detail::concat("was killed by signal ", signal, name ? detail::concat(" (SIG", name, ")") : "");
}

namespace {

// ------------------------------------------------------------------- launch report

// Writes a list such as "0-2, 5".
std::string list_of(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) out += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace

void LaunchReport::tell(const RankFailure& failure, pid_t pid,
                        std::span<const FlightSnapshot> when_it_failed) const {
  const std::string what = failure.what.empty() ? "failed" : failure.what;
  const std::string ended =
      detail::concat("prun: rank ", options_.number_of(failure.rank), " (pid ", pid, ") ", what);
  if (options_.share) return options_.say(ended);  // ranks of several hosts report the rest themselves
  options_.say(ended + "; " + it_was(failure.doing));
  if (!failure.said.empty()) options_.say(detail::concat("prun: rank ", failure.rank, ": ", failure.said));
  report_others(failure, when_it_failed);
  report_circumstances(failure, pid);
  report_next(failure);
}

// Reports what each rank did last, those that did the same on one line; the odd one is marked where ranks
// wait.
void LaunchReport::report_others(const RankFailure& failure,
                                 std::span<const FlightSnapshot> when_it_failed) const {
  std::vector<std::pair<std::string, std::vector<int>>> others;
  for (std::size_t i = 0; i < when_it_failed.size(); ++i) {
    if (static_cast<int>(i) == failure.rank) continue;
    const std::string doing = describe_flight(when_it_failed[i]);
    auto same =
        std::find_if(others.begin(), others.end(), [&](const auto& other) { return other.first == doing; });
    if (same == others.end()) same = others.insert(others.end(), {doing, {}});
    same->second.push_back(static_cast<int>(i));
  }
  for (const auto& [doing, ranks] : others)
    options_.say(detail::concat("prun:   rank", ranks.size() > 1 ? "s " : " ", list_of(ranks), ": ", doing));
  if (failure.exit_code == exit_code(ErrorCode::hang))
    options_.say(detail::concat("prun: > rank ", failure.rank, ": ", failure.doing,
                                failure.awaited ? "  <- the others wait for it" : ""));
}

void LaunchReport::report_circumstances(const RankFailure& failure, pid_t pid) const {
  const auto lived =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began_).count();
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  options_.say(detail::concat("prun:   when: ", utc_text(failure.at), ", ", lived, " s after the start, on ",
                              printable(host, sizeof host)));
  if (!failure.exchange.empty()) options_.say("prun:   its last exchange: " + failure.exchange);
  if (failure.killed) options_.say("prun:   why: " + kernel_.of(pid));
}

void LaunchReport::report_next(const RankFailure& failure) const {
  const bool lost = failure.exit_code == exit_code(ErrorCode::rank_died) ||
                    failure.exit_code == exit_code(ErrorCode::hang) ||
                    failure.exit_code == exit_code(ErrorCode::comm_failed);
  const bool full = failure.exit_code == exit_code(ErrorCode::storage);
  const std::string next = (lost || full) && options_.next ? options_.next() : "";
  if (!next.empty())
    options_.say((full ? "prun:   next, once files can be written: " : "prun:   next: ") + next);
}

void LaunchReport::report_survivor(int rank, pid_t pid) const {
  options_.say(detail::concat("prun: rank ", options_.number_of(rank), " (pid ", pid,
                              ") does not die; the system holds it, see /proc/", pid, "/stack"));
}

}  // namespace prun
