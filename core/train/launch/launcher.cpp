// One loop over signals, ranks that end, the rendezvous and the time.
#include "train/launch/launcher.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <span>

#include "base/core_shares.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/utc.hpp"
#include "prun/error.hpp"
#include "train/launch/flight.hpp"
#include "train/launch/hang_watch.hpp"
#include "train/launch/identity.hpp"
#include "train/launch/kernel_word.hpp"
#include "train/launch/rank_process.hpp"
#include "train/launch/rendezvous_server.hpp"
#include "train/launch/shared_folder.hpp"
#include "train/launch/socket.hpp"
#include "train/launch/stop_signals.hpp"
#include "train/launch/wire.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto patience_after_report = 1s;  // for the rank that reported to end by itself
constexpr auto reap_limit = 3s;             // after SIGKILL; longer only where the kernel holds a process
constexpr auto longest_nap = 250ms;

// What others have set about ranks would contradict this launch.
constexpr const char* foreign_variables[] = {"RANK",
                                             "WORLD_SIZE",
                                             "LOCAL_RANK",
                                             "LOCAL_WORLD_SIZE",
                                             "SLURM_PROCID",
                                             "SLURM_LOCALID",
                                             "OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "PRUN_LAUNCHER",
                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE"};

// Signals that stop a run arrive in a descriptor while this lives.
class CaughtSignals {
 public:
  CaughtSignals() {
    sigset_t caught;
    sigemptyset(&caught);
    for (const int signal : heard_stop_signals()) sigaddset(&caught, signal);
    ::pthread_sigmask(SIG_BLOCK, &caught, &before_);
    fd_ = FileDescriptor(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_.is_open()) throw_error(ErrorCode::unsupported, "cannot catch signals: ", refusal_text(errno));
  }
  // One that comes when all is over must not change how the launcher ends.
  ~CaughtSignals() {
    while (take() != 0) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& mask_before() const { return before_; }
  // The next one, or 0.
  int take() {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return detail::concat("ended with exit code ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = ::sigabbrev_np(signal);
  return detail::concat("was killed by signal ", signal, name ? detail::concat(" (SIG", name, ")") : "");
}

// "0-2, 5"
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

struct Rank {
  RankProcess process;
  FlightView flight;
  std::optional<int> status;  // once reaped
};

// Why the run fails, as far as one rank is concerned.
struct Failure {
  int rank = -1;
  int exit_code = 1;
  bool consequence = false;  // it says itself that another rank is the reason
  std::string what;          // "was killed by signal 9 (SIGKILL)"
  std::string said;          // its own sentence
  std::string doing, exchange;
  std::time_t at = 0;   // when it became known
  bool killed = false;  // by a SIGKILL that is not ours
};

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options), server_(options.ranks) {
    if (!options_.say)
      options_.say = [](std::string_view line) {
        std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
      };
  }
  ~Launch() { end_all(); }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int run();

 private:
  void start_all();
  void start(int rank, const std::optional<cpu_set_t>& cores);
  std::vector<std::string> environment_of(int rank, int socket, int record) const;
  // In the run, of one that is counted among this host's.
  int number(int rank) const { return options_.share ? options_.share->first + rank : rank; }
  int world() const { return options_.share ? options_.share->world : options_.ranks; }

  void wait();
  void take_signals();
  void take_reports();
  void take_ended();
  void reap(std::size_t rank);
  void watch();
  void blame(const Hang& hang);
  std::optional<Hang> find_stopped_alone(std::span<const WatchedRank> watched);

  bool is_stop(int status) const;
  bool began(int rank) const;
  void stop_early();
  void note_end(int rank, int status);
  Failure& failure_of(int rank);
  void kill_by(Clock::time_point time) { kill_at_ = kill_at_ ? std::min(*kill_at_, time) : time; }
  void kill_all();
  void end_all();
  bool all_gone() const;

  const Failure* first() const;
  int conclude();
  void tell(const Failure& failure);
  void tell_others(const Failure& failure);
  void tell_circumstances(const Failure& failure, pid_t pid);

  LaunchOptions options_;
  const Clock::time_point began_ = Clock::now();
  const KernelWord kernel_;
  SharedFolder shared_;
  CaughtSignals signals_;
  RendezvousServer server_;
  std::vector<Rank> ranks_;
  std::vector<Failure> failures_;  // in the order they became known
  std::vector<FlightSnapshot> when_it_failed_;
  Clock::time_point next_watch_{};
  std::optional<Clock::time_point> only_stopped_since_;
  std::optional<Clock::time_point> kill_at_, killed_at_;
  int stop_signal_ = 0;  // passed on
  int stop_status_ = 0;  // exit code of a rank that stopped
  bool stopped_early_ = false;
  bool killed_by_user_ = false;
};

// ------------------------------------------------------------------- starting

std::vector<std::string> Launch::environment_of(int rank, int socket, int record) const {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at; ++at) {
    const std::string_view line(*at);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  for (const char* name : foreign_variables) variables.erase(name);
  if (!shared_.path().empty())
    for (const std::string& name : options_.shared_folder_variables)
      variables.try_emplace(name, shared_.path());
  for (const auto& [name, value] : options_.environment) variables[name] = value;
  const std::string own = options_.share ? "" : "PRUN_";
  variables[own + "RANK"] = std::to_string(number(rank));
  variables[own + "LOCAL_RANK"] = std::to_string(rank);
  variables[own + (options_.share ? "WORLD_SIZE" : "WORLD")] = std::to_string(world());
  variables[own + (options_.share ? "LOCAL_WORLD_SIZE" : "LOCAL_WORLD")] = std::to_string(options_.ranks);
  if (!options_.share) {
    variables["PRUN_RENDEZVOUS"] = "fd:" + std::to_string(socket);
    variables["PRUN_FLIGHT_FD"] = std::to_string(record);
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

void Launch::start(int rank, const std::optional<cpu_set_t>& cores) {
  auto [mine, theirs] = connected_pair();
  const FileDescriptor record = make_flight_record();
  FlightView view(record.get());
  RankStart start;
  start.program = options_.program;
  start.arguments = options_.arguments;
  start.arguments.front() = rank_title(number(rank), world());
  start.environment = environment_of(rank, theirs.get(), record.get());
  if (!options_.share) start.inherited = {theirs.get(), record.get()};
  start.cores = cores;
  start.signal_mask = signals_.mask_before();
  RankProcess process = start_rank(start);
  ranks_.push_back({std::move(process), std::move(view), {}});
  if (!options_.share) server_.adopt(rank, std::move(mine));
}

void Launch::start_all() {
  cpu_set_t usable;
  std::vector<std::optional<cpu_set_t>> shares(static_cast<std::size_t>(options_.ranks));
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) shares = share_cores(usable, options_.ranks);
  for (int rank = 0; rank < options_.ranks; ++rank) start(rank, shares[static_cast<std::size_t>(rank)]);
}

// ------------------------------------------------------------------- events

void Launch::wait() {
  std::vector<pollfd> entries = {{signals_.fd(), POLLIN, 0}, {server_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_)
    if (!rank.status) entries.push_back({rank.process.pidfd.get(), POLLIN, 0});
  auto nap = std::chrono::milliseconds(longest_nap);
  if (const int server = server_.wait_ms(); server >= 0)
    nap = std::min(nap, std::chrono::milliseconds(server));
  if (kill_at_ && !killed_at_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    nap = std::clamp(left, std::chrono::milliseconds(0), nap);
  }
  ::poll(entries.data(), entries.size(), static_cast<int>(nap.count()));
}

void Launch::take_signals() {
  while (const int signal = signals_.take()) {
    if (stop_signal_ != 0 && signal == SIGINT) {
      killed_by_user_ = true;
      kill_all();  // first: a terminal that stands still may hold up the words
      options_.say("prun: second SIGINT: all ranks are killed");
    }
    if (stop_signal_ != 0) continue;
    stop_signal_ = signal;
    for (const Rank& rank : ranks_)
      if (!rank.status) ::kill(rank.process.pid, signal);
  }
}

Failure& Launch::failure_of(int rank) {
  if (failures_.empty())
    for (const Rank& each : ranks_) when_it_failed_.push_back(each.flight.snapshot());
  for (Failure& failure : failures_)
    if (failure.rank == rank) return failure;
  Failure failure;
  failure.rank = rank;
  const FlightSnapshot flight = ranks_[static_cast<std::size_t>(rank)].flight.snapshot();
  failure.doing = describe_flight(flight, flight_now_ns());
  failure.exchange = last_exchange(flight);
  failure.at = std::time(nullptr);
  failures_.push_back(failure);
  return failures_.back();
}

void Launch::take_reports() {
  for (const RankReport& report : server_.take_reports()) {
    if (killed_at_) return;
    Failure& failure = failure_of(report.rank);
    if (!failure.said.empty()) continue;
    failure.said = report.text;
    failure.consequence = report.code == ErrorCode::comm_failed;
    if (failure.what.empty()) failure.exit_code = exit_code(report.code);
    kill_by(Clock::now() + patience_after_report);
  }
}

// A rank that ends with 128 + a stop signal did what it was asked to; the others agreed with it.
bool Launch::is_stop(int status) const {
  return WIFEXITED(status) && failures_.empty() && is_stop_code(WEXITSTATUS(status));
}

// Ranks of several hosts have records of their own, and a word of their own about it.
bool Launch::began(int rank) const {
  return options_.share || ranks_[static_cast<std::size_t>(rank)].flight.snapshot().step >= 0;
}

// Before the first step a rank ends alone, and others that wait for it may fail because of that.
void Launch::stop_early() {
  stopped_early_ = true;
  kill_by(Clock::now() + options_.grace);
}

void Launch::note_end(int rank, int status) {
  if (killed_at_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  if (is_stop(status)) {
    // One that only agreed to stop says SIGTERM.
    if (stop_status_ == 0 || stop_status_ == 128 + SIGTERM) stop_status_ = WEXITSTATUS(status);
    return began(rank) ? kill_by(Clock::now() + options_.stop_limit) : stop_early();
  }
  if (WIFSIGNALED(status) && stop_signal_ != 0 && WTERMSIG(status) == stop_signal_) {
    // It had not come so far as to handle the signal.
    stop_status_ = 128 + stop_signal_;
    return stop_early();
  }
  Failure& failure = failure_of(rank);
  failure.what = how_it_ended(status);
  failure.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  // One that was late keeps its code, however it ends when it learns of that.
  if (failure.exit_code != exit_code(ErrorCode::hang))
    failure.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code(ErrorCode::rank_died);
  // What it said, if it did, has settled that already.
  if (failure.said.empty())
    failure.consequence = WIFEXITED(status) && WEXITSTATUS(status) == exit_code(ErrorCode::comm_failed);
  kill_by(Clock::now() + options_.grace);
  server_.fail({ErrorCode::comm_failed, detail::concat("rank ", rank, " ", failure.what)});
}

// Before it is reaped its number is still its own, and so is its group's: what it started goes with it.
void Launch::reap(std::size_t rank) {
  const pid_t pid = ranks_[rank].process.pid;
  ::kill(-pid, SIGKILL);
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return;
  ranks_[rank].status = status;
  note_end(static_cast<int>(rank), status);
}

// Those that were killed come first: what ended with a code at the same time may have noticed.
void Launch::take_ended() {
  std::vector<std::size_t> killed, ended;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].status) continue;
    siginfo_t info{};
    const auto pid = static_cast<id_t>(ranks_[i].process.pid);
    if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    (info.si_code == CLD_EXITED ? ended : killed).push_back(i);
  }
  for (const std::size_t rank : killed) reap(rank);
  for (const std::size_t rank : ended) reap(rank);
}

void Launch::watch() {
  if (options_.hang_limit == 0ms || !failures_.empty() || killed_at_ || Clock::now() < next_watch_) return;
  next_watch_ = Clock::now() + longest_nap;
  std::vector<WatchedRank> watched;
  for (const Rank& rank : ranks_) {
    const bool stopped = !rank.status && process_state(rank.process.pid) == 'T';
    watched.push_back({rank.flight.snapshot(), rank.status.has_value(), stopped ? stopped_text : nullptr});
  }
  if (const auto hang = find_hang(watched, flight_now_ns(), options_.hang_limit))
    blame(*hang);
  else if (const auto stopped = find_stopped_alone(watched))
    blame(*stopped);
}

void Launch::blame(const Hang& hang) {
  Failure& failure = failure_of(hang.culprit);
  failure.what = hang.reason;
  failure.exit_code = exit_code(ErrorCode::hang);
  kill_all();
}

// When the others have ended nobody waits for it in a collective any more.
std::optional<Hang> Launch::find_stopped_alone(std::span<const WatchedRank> watched) {
  const auto stopped =
      std::find_if(watched.begin(), watched.end(), [](const WatchedRank& rank) { return rank.standstill; });
  const bool others_run = std::any_of(watched.begin(), watched.end(), [](const WatchedRank& rank) {
    return !rank.ended && !rank.standstill;
  });
  if (stopped == watched.end() || others_run) {
    only_stopped_since_.reset();
    return {};
  }
  if (!only_stopped_since_) only_stopped_since_ = Clock::now();
  if (Clock::now() - *only_stopped_since_ < options_.hang_limit) return {};
  return Hang{static_cast<int>(stopped - watched.begin()),
              std::string(stopped_text) + ", and no other rank runs any more"};
}

// ------------------------------------------------------------------- the end

void Launch::kill_all() {
  if (!killed_at_) killed_at_ = Clock::now();
  for (const Rank& rank : ranks_) {
    if (rank.status) continue;
    ::kill(-rank.process.pid, SIGKILL);
    ::kill(rank.process.pid, SIGKILL);
  }
}

bool Launch::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.status.has_value(); });
}

// Also the way out of an exception while starting.
void Launch::end_all() {
  if (all_gone()) return;
  kill_all();
  while (!all_gone() && Clock::now() < *killed_at_ + reap_limit) {
    wait();
    take_ended();
  }
}

// The first that did not fail because of another.
const Failure* Launch::first() const {
  for (const Failure& failure : failures_)
    if (!failure.consequence) return &failure;
  return failures_.empty() || stopped_early_ ? nullptr : &failures_.front();
}

void Launch::tell(const Failure& failure) {
  const auto& process = ranks_[static_cast<std::size_t>(failure.rank)].process;
  const std::string what = failure.what.empty() ? "failed" : failure.what;
  const std::string ended =
      detail::concat("prun: rank ", number(failure.rank), " (pid ", process.pid, ") ", what);
  if (options_.share) return options_.say(ended);  // ranks of several hosts have said the rest themselves
  options_.say(ended + "; " + it_was(failure.doing));
  if (!failure.said.empty()) options_.say(detail::concat("prun: rank ", failure.rank, ": ", failure.said));
  tell_others(failure);
  tell_circumstances(failure, process.pid);
}

// What each rank did last, those that did the same on one line; the odd one is marked where ranks wait.
void Launch::tell_others(const Failure& failure) {
  std::vector<std::pair<std::string, std::vector<int>>> others;
  for (std::size_t i = 0; i < when_it_failed_.size(); ++i) {
    if (static_cast<int>(i) == failure.rank) continue;
    const std::string doing = describe_flight(when_it_failed_[i]);
    auto same =
        std::find_if(others.begin(), others.end(), [&](const auto& other) { return other.first == doing; });
    if (same == others.end()) same = others.insert(others.end(), {doing, {}});
    same->second.push_back(static_cast<int>(i));
  }
  for (const auto& [doing, ranks] : others)
    options_.say(detail::concat("prun:   rank", ranks.size() > 1 ? "s " : " ", list_of(ranks), ": ", doing));
  if (failure.exit_code == exit_code(ErrorCode::hang))
    options_.say(
        detail::concat("prun: > rank ", failure.rank, ": ", failure.doing, "  <- the others wait for it"));
}

void Launch::tell_circumstances(const Failure& failure, pid_t pid) {
  const auto lived = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began_).count();
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  options_.say(detail::concat("prun:   when: ", utc_text(failure.at), ", ", lived, " s after the start, on ",
                              printable(host, sizeof host)));
  if (!failure.exchange.empty()) options_.say("prun:   its last exchange: " + failure.exchange);
  if (failure.killed) options_.say("prun:   why: " + kernel_.of(pid));
  const bool lost = failure.exit_code == exit_code(ErrorCode::rank_died) ||
                    failure.exit_code == exit_code(ErrorCode::hang) ||
                    failure.exit_code == exit_code(ErrorCode::comm_failed);
  const bool full = failure.exit_code == exit_code(ErrorCode::storage);
  const std::string next = (lost || full) && options_.next ? options_.next() : "";
  if (!next.empty())
    options_.say((full ? "prun:   next, once files can be written: " : "prun:   next: ") + next);
}

int Launch::conclude() {
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (!ranks_[i].status)
      options_.say(detail::concat("prun: rank ", number(static_cast<int>(i)), " (pid ", ranks_[i].process.pid,
                                  ") does not die; the system holds it, see /proc/", ranks_[i].process.pid,
                                  "/stack"));
  if (killed_by_user_) return 128 + SIGINT;
  if (const Failure* failure = first()) {
    tell(*failure);
    return failure->exit_code;
  }
  if (killed_at_ && !stopped_early_)
    options_.say("prun: a rank stopped and the others did not within their time; they were killed");
  return stop_status_;
}

int Launch::run() {
  start_all();
  while (!all_gone()) {
    wait();
    take_signals();
    server_.process();
    take_ended();
    server_.process();  // what a rank said just before it ended
    take_reports();
    watch();
    if (kill_at_ && Clock::now() >= *kill_at_) kill_all();
    if (killed_at_ && Clock::now() >= *killed_at_ + reap_limit) break;
  }
  return conclude();
}

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.ranks < 1 || options.ranks > flight_ranks)
    throw_error(ErrorCode::bad_input, "cannot start ", options.ranks, " ranks on one host: from 1 to ",
                flight_ranks, " are possible");
  PRUN_CHECK(!options.arguments.empty(), "a rank needs a name");
  return Launch(options).run();
}

}  // namespace prun
