// Runs one loop over signals, ranks that end, the rendezvous and the time. The ranks are in
// launch/rank_process.hpp, failures and reports in launch/launch_report.hpp.
#include "launch/launcher.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "base/machine.hpp"
#include "base/numbered.hpp"
#include "launch/hang_watch.hpp"
#include "launch/identity.hpp"
#include "launch/launch_report.hpp"
#include "launch/rank_process.hpp"
#include "launch/rendezvous_server.hpp"
#include "launch/shared_folder.hpp"
#include "launch/socket.hpp"
#include "launch/stop_signals.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- caught signals
// Catches the signals that stop a run, in a descriptor that a loop can wait for.

// Has signals that stop a run arrive in a descriptor while this lives.
class CaughtSignals {
 public:
  CaughtSignals();
  // A signal that comes when all is over must not change how the launcher ends.
  ~CaughtSignals();
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& mask_before() const { return before_; }
  // Returns the next signal, or 0.
  int take();

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

CaughtSignals::CaughtSignals() {
  sigset_t caught;
  sigemptyset(&caught);
  for (const int signal : heard_stop_signals()) sigaddset(&caught, signal);
  ::pthread_sigmask(SIG_BLOCK, &caught, &before_);
  fd_ = FileDescriptor(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) throw_error(ErrorCode::unsupported, "cannot catch signals: ", refusal_text(errno));
}

CaughtSignals::~CaughtSignals() {
  while (take() != 0) continue;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int CaughtSignals::take() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

// ------------------------------------------------------------------- rank environment
// Makes the environment of a rank: which rank it is, and where it meets the others.

// Variables that other launchers have set for ranks would contradict this launch.
constexpr const char* launcher_variables[] = {"RANK",
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

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at; ++at) {
    const std::string_view line(*at);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return variables;
}

// Returns all variables, as NAME=value: this process' own without those of other launchers, and those that
// make it `rank` of this host. `shared_folder` is its path, or empty. `socket` and `record` are descriptors
// that it inherits if all ranks are here.
std::vector<std::string> environment_of_rank(const LaunchOptions& options, int rank,
                                             const std::string& shared_folder, int socket, int record) {
  std::map<std::string, std::string> variables = own_environment();
  for (const char* name : launcher_variables) variables.erase(name);
  if (!shared_folder.empty())
    for (const std::string& name : options.shared_folder_variables)
      variables.try_emplace(name, shared_folder);
  for (const auto& [name, value] : options.environment) variables[name] = value;
  const std::string own = options.share ? "" : "PRUN_";
  variables[own + "RANK"] = std::to_string(options.number_of(rank));
  variables[own + "LOCAL_RANK"] = std::to_string(rank);
  variables[own + (options.share ? "WORLD_SIZE" : "WORLD")] = std::to_string(options.world());
  variables[own + (options.share ? "LOCAL_WORLD_SIZE" : "LOCAL_WORLD")] = std::to_string(options.ranks);
  if (!options.share) {
    variables["PRUN_RENDEZVOUS"] = "fd:" + std::to_string(socket);
    variables["PRUN_FLIGHT_FD"] = std::to_string(record);
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

// ------------------------------------------------------------------- launcher

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto patience_after_report = 1s;  // the rank that reported may end by itself for so long
constexpr auto reap_limit = 3s;             // limit after SIGKILL; longer only if the kernel holds a process
constexpr auto longest_nap = 250ms;

LaunchOptions with_voice(LaunchOptions options) {
  if (!options.say)
    options.say = [](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
  return options;
}

// Says whether a rank was stopped: one that ends with 128 + a stop signal did as told.
bool is_stop(int status) { return WIFEXITED(status) && is_stop_code(WEXITSTATUS(status)); }

class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(with_voice(options)), report_(options_), server_(options.ranks) {}
  ~Launch() { end_all(); }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int run();

 private:
  void start_all();
  void start(int rank, const std::optional<cpu_set_t>& cores);

  void wait();
  void take_signals();
  void take_ended();
  void take_reports();
  void watch();

  void note_end(int rank, int status);
  bool began(int rank) const;
  void stop_early();
  void fail_by(int rank, int status);
  void blame(const Hang& hang);

  void kill_by(Clock::time_point time) { kill_at_ = kill_at_ ? std::min(*kill_at_, time) : time; }
  void kill_all();
  void end_all();
  int conclude();
  const RankFailure* culprit() const;

  const LaunchOptions options_;
  const LaunchReport report_;
  SharedFolder shared_;
  CaughtSignals signals_;
  RendezvousServer server_;
  RankGroup ranks_;
  RankFailures failures_;
  StoppedAlone stopped_alone_;
  Clock::time_point next_watch_{};
  std::optional<Clock::time_point> kill_at_, killed_at_;
  int stop_signal_ = 0;  // signal that was passed on
  Clock::time_point stop_at_{};
  int stop_status_ = 0;  // exit code of a rank that stopped
  bool stopped_early_ = false;
  bool killed_by_user_ = false;
};

int Launch::run() {
  start_all();
  while (!ranks_.all_gone()) {
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

// ------------------------------------------------------------------- starting

void Launch::start_all() {
  cpu_set_t usable;
  Numbered<std::optional<cpu_set_t>> shares(options_.ranks);
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) shares = share_cores(usable, options_.ranks);
  for (int rank = 0; rank < options_.ranks; ++rank) start(rank, shares[rank]);
}

void Launch::start(int rank, const std::optional<cpu_set_t>& cores) {
  auto [mine, theirs] = connected_pair();
  const FileDescriptor record = make_flight_record();
  FlightView view(record.get());
  RankStart start;
  start.program = options_.program;
  start.arguments = options_.arguments;
  start.arguments.front() = rank_title(options_.number_of(rank), options_.world());
  start.environment = environment_of_rank(options_, rank, shared_.path(), theirs.get(), record.get());
  if (!options_.share) start.inherited = {theirs.get(), record.get()};
  start.cores = cores;
  start.signal_mask = signals_.mask_before();
  RankProcess process = start_rank(start);
  ranks_.add({std::move(process), std::move(view), {}});
  if (!options_.share) server_.adopt(rank, std::move(mine));
}

// ------------------------------------------------------------------- events

void Launch::wait() {
  std::vector<pollfd> entries = {{signals_.fd(), POLLIN, 0}, {server_.fd(), POLLIN, 0}};
  for (const LaunchedRank& rank : ranks_.all())
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
      kill_all();  // done first, since a terminal that stands still may block the report
      options_.say("prun: second SIGINT: all ranks are killed");
    }
    if (stop_signal_ != 0) continue;
    stop_signal_ = signal;
    stop_at_ = Clock::now();
    ranks_.signal(signal);
  }
}

void Launch::take_ended() {
  for (const int rank : ranks_.ended())
    if (const std::optional<int> status = ranks_.reap(rank)) note_end(rank, *status);
}

void Launch::take_reports() {
  for (const RankReport& report : server_.take_reports()) {
    if (killed_at_) return;
    RankFailure& failure = failures_.of(report.rank, ranks_);
    if (!failure.said.empty()) continue;
    failure.said = report.text;
    failure.consequence = report.code == ErrorCode::comm_failed;
    if (failure.what.empty()) failure.exit_code = exit_code(report.code);
    kill_by(Clock::now() + patience_after_report);
  }
}

void Launch::watch() {
  const bool watches = options_.hang_limit != 0ms || stop_signal_ != 0;
  if (!watches || !failures_.empty() || killed_at_ || Clock::now() < next_watch_) return;
  next_watch_ = Clock::now() + longest_nap;
  const std::vector<WatchedRank> watched = ranks_.watched();
  const std::int64_t now = flight_now_ns();
  if (stop_signal_ != 0 && Clock::now() >= stop_at_ + options_.still_limit)
    if (const auto stuck = find_stuck_at_stop(watched, now, options_.still_limit)) return blame(*stuck);
  if (options_.hang_limit == 0ms) return;
  if (const auto hang = find_hang(watched, now, options_.hang_limit))
    blame(*hang);
  else if (const auto stopped = stopped_alone_.find(watched, Clock::now(), options_.hang_limit))
    blame(*stopped);
}

// ------------------------------------------------------------------- what they mean

void Launch::note_end(int rank, int status) {
  if (killed_at_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  if (failures_.empty() && is_stop(status)) {  // the others agreed with this rank
    // A rank that only agreed to stop reports SIGTERM.
    if (stop_status_ == 0 || stop_status_ == 128 + SIGTERM) stop_status_ = WEXITSTATUS(status);
    return began(rank) ? kill_by(Clock::now() + options_.stop_limit) : stop_early();
  }
  if (WIFSIGNALED(status) && stop_signal_ != 0 && WTERMSIG(status) == stop_signal_) {
    // The rank had not yet begun to handle the signal.
    stop_status_ = 128 + stop_signal_;
    return stop_early();
  }
  fail_by(rank, status);
}

// Says whether a rank has begun; ranks of several hosts have records of their own, and report it themselves.
bool Launch::began(int rank) const { return options_.share || ranks_[rank].flight.snapshot().step >= 0; }

// Stops early: before the first step a rank ends alone, and others that wait for it may fail because of that.
void Launch::stop_early() {
  stopped_early_ = true;
  kill_by(Clock::now() + options_.grace);
}

void Launch::fail_by(int rank, int status) {
  RankFailure& failure = failures_.of(rank, ranks_);
  failure.what = how_it_ended(status);
  failure.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  // A rank that was late keeps its code, however it ends when it learns of that.
  if (failure.exit_code != exit_code(ErrorCode::hang))
    failure.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code(ErrorCode::rank_died);
  // If the rank reported, its report has settled that already.
  if (failure.said.empty())
    failure.consequence = WIFEXITED(status) && WEXITSTATUS(status) == exit_code(ErrorCode::comm_failed);
  kill_by(Clock::now() + options_.grace);
  server_.fail({ErrorCode::comm_failed, detail::concat("rank ", rank, " ", failure.what)});
}

void Launch::blame(const Hang& hang) {
  RankFailure& failure = failures_.of(hang.culprit, ranks_);
  failure.what = hang.reason;
  failure.awaited = hang.awaited;
  failure.exit_code = exit_code(ErrorCode::hang);
  kill_all();
}

// ------------------------------------------------------------------- the end

void Launch::kill_all() {
  if (!killed_at_) killed_at_ = Clock::now();
  ranks_.kill();
}

// This is also the way out of an exception while starting.
void Launch::end_all() {
  if (ranks_.all_gone()) return;
  kill_all();
  while (!ranks_.all_gone() && Clock::now() < *killed_at_ + reap_limit) {
    wait();
    take_ended();
  }
}

int Launch::conclude() {
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (!ranks_[rank].status) report_.report_survivor(rank, ranks_[rank].process.pid);
  if (killed_by_user_) return 128 + SIGINT;
  if (const RankFailure* failure = culprit()) {
    report_.tell(*failure, ranks_[failure->rank].process.pid, failures_.when_it_failed());
    return failure->exit_code;
  }
  if (killed_at_ && !stopped_early_)
    options_.say("prun: a rank stopped and the others did not within their time; they were killed");
  return stop_status_;
}

// Returns the first failure that is not because of another.
const RankFailure* Launch::culprit() const {
  if (const RankFailure* cause = failures_.first_cause()) return cause;
  return stopped_early_ ? nullptr : failures_.first();
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
