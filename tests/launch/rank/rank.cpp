// What the tests of libs/launch start: a launcher ("launch RANKS HANG_MS ROLE ...") or a rank that
// plays a role.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "launch/launcher.hpp"
#include "launch/rendezvous.hpp"
#include "prun/error.hpp"
#include "train/loop/stop_signal.hpp"

namespace {

using namespace prun;

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

std::vector<int> all_ranks(const Session& session) {
  std::vector<int> ranks(static_cast<std::size_t>(session.identity().world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Bytes that differ by rank and round, zeros among them.
std::string contribution(int rank, int round) {
  return std::string(static_cast<std::size_t>(1000 * rank), '\0') + std::to_string(rank * 1000 + round);
}

int gather(Session& session, int rounds) {
  const int me = session.identity().rank;
  std::vector<int> mine;  // ranks of my parity, the highest first
  for (int rank = session.identity().world; rank-- > 0;)
    if (rank % 2 == me % 2) mine.push_back(rank);
  const std::vector<std::vector<int>> groups = {all_ranks(session), mine};
  for (int round = 0; round < rounds; ++round)
    for (const std::vector<int>& group : groups) {
      const auto parts = session.rendezvous().all_gather("test", group, contribution(me, round));
      PRUN_CHECK(parts.size() == group.size(), parts.size());
      for (std::size_t i = 0; i < group.size(); ++i)
        PRUN_CHECK(parts[i] == contribution(group[i], round), "part ", i, " in round ", round);
    }
  std::printf("rank %d gathered\n", me);
  return 0;
}

// Computes without ever looking at the rendezvous, until it is told that the run has failed.
int compute(Session& session) {
  std::promise<std::string> told;
  session.rendezvous().barrier("begin", all_ranks(session));
  session.rendezvous().on_failure([&](const Error& error) { told.set_value(error.what()); });
  std::printf("rank %d runs\n", session.identity().rank);
  std::printf("rank %d was told: %s\n", session.identity().rank, told.get_future().get().c_str());
  return 12;
}

// Steps for ever; `at_step` may do something else instead of the collective.
template <class AtStep>
int steps(Session& session, const AtStep& at_step) {
  const std::vector<int> everybody = all_ranks(session);
  FlightRecorder& flight = session.flight();
  const int group = flight.add_communicator("dp", everybody);
  const StopSignal stop;
  for (int step = 0;; ++step) {
    flight.begin_step(step);
    flight.begin_call("forward");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (step == 3) std::printf("rank %d runs\n", session.identity().rank);
    at_step(step);
    flight.end_call("forward");
    flight.enter(group, "all_reduce");
    int signal = 0;
    for (const std::string& part :
         session.rendezvous().all_gather("step", everybody, std::to_string(StopSignal::received())))
      signal = std::max(signal, std::atoi(part.c_str()));
    flight.leave(group);
    flight.end_step();
    if (signal != 0) return 128 + signal;
  }
}

int play(Session& session, const std::vector<std::string>& role) {
  const int me = session.identity().rank;
  const std::string& name = role.at(0);
  const int number = role.size() > 1 ? std::atoi(role[1].c_str()) : 0;
  const bool chosen = role.size() > 2 && (role[2] == "all" || std::atoi(role[2].c_str()) == me);
  if (name == "gather") return gather(session, number);
  if (name == "steps") return steps(session, [](int) {});
  if (name == "compute") return compute(session);
  if (name == "exit") {
    if (chosen) return number;
    sleep_for_ever();
  }
  if (name == "throw")
    return steps(session, [&](int step) {
      if (chosen && step == 5) throw_error(static_cast<ErrorCode>(number), "rank ", me, "'s own reason");
    });
  if (name == "nap")
    return steps(session, [&](int step) {
      if (!chosen || step != number) return;
      session.flight().begin_call("long nap");
      sleep_for_ever();
    });
  if (name == "stop") {
    if (chosen) ::raise(SIGSTOP);
    return 0;
  }
  if (name == "children") {
    if (::fork() == 0) {
      std::printf("child pid %d\n", ::getpid());
      sleep_for_ever();
    }
    return steps(session, [](int) {});
  }
  if (name == "absent") {
    if (chosen) sleep_for_ever();
    session.rendezvous().barrier("assembly", all_ranks(session), std::chrono::milliseconds(number));
    return 0;
  }
  if (name == "cores") {
    cpu_set_t usable;
    PRUN_CHECK(::sched_getaffinity(0, sizeof usable, &usable) == 0, "rank ", me);
    std::printf("rank %d has %d cores\n", me, CPU_COUNT(&usable));
    return 0;
  }
  if (name == "folder") {
    const char* const folder = std::getenv("PRUN_TEST_FOLDER");
    std::printf("rank %d has folder %s\n", me, folder ? folder : "nowhere");
    return folder && ::access(folder, W_OK) == 0 ? 0 : 1;
  }
  std::fprintf(stderr, "no role %s\n", name.c_str());
  return 99;
}

int be_rank(const std::vector<std::string>& role) {
  std::unique_ptr<Session> session;
  try {
    session = Session::join();
    if (!session) throw_error(ErrorCode::bad_input, "this process is no rank");
    std::printf("rank %d pid %d\n", session->identity().rank, ::getpid());
    return play(*session, role);
  } catch (const Error& error) {
    std::printf("rank %d caught: %s\n", session ? session->identity().rank : -1, error.what());
    if (session) session->rendezvous().report_failure(error.code(), error.what());
    return exit_code(error.code());
  }
}

int be_launcher(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  options.ranks = std::atoi(arguments.at(1).c_str());
  options.hang_limit = std::chrono::milliseconds(std::atoi(arguments.at(2).c_str()));
  options.still_limit = std::chrono::seconds(3);
  options.arguments = {"rank"};
  options.shared_folder_variables = {"PRUN_TEST_FOLDER"};
  options.arguments.insert(options.arguments.end(), arguments.begin() + 3, arguments.end());
  try {
    return launch(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error.code());
  }
}

}  // namespace

int main(int count, char** values) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.empty()) return 99;
  return arguments[0] == "launch" ? be_launcher(arguments) : be_rank(arguments);
}
