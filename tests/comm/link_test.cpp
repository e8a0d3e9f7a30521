// A network that falls silent: two network namespaces with a cable between them, which only root may make.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "ranks.hpp"

namespace prun::test::link_test {
namespace {

using namespace std::chrono_literals;

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// The other rank's number in exchange for one's own: both are here.
int swap(const Rank& rank, int mine) {
  const int socket = rank.meshes[0].between(rank.number, 1 - rank.number);
  int theirs = -1;
  require(::send(socket, &mine, sizeof mine, 0) == sizeof mine, "send");
  require(::recv(socket, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs, "recv");
  return theirs;
}

std::string address_of(int rank) { return "10.249.7." + std::to_string(rank + 1); }

// Whether this rank now has a network of its own, with a cable to the other's.
bool lay_cable(const Rank& rank) {
  // UCX finds its devices in /sys, which shows those of the network it was mounted in.
  const bool apart = ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                     ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                     ::mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
  const int other = swap(rank, apart ? ::getpid() : -1);
  if (!apart || other < 0) return false;
  const bool laid = rank.number != 0 ||
                    shell("ip link add cable0 type veth peer name cable1 netns " + std::to_string(other));
  const std::string name = "cable" + std::to_string(rank.number);
  if (swap(rank, laid) == 0 || !laid) return false;
  const bool up =
      shell("ip addr add " + address_of(rank.number) + "/24 dev " + name + " && ip link set " + name + " up");
  if (swap(rank, up) == 0 || !up) return false;
  for (int i = 0; i < 1000 && !shell("grep -q up /sys/class/net/" + name + "/operstate"); ++i)
    std::this_thread::sleep_for(10ms);
  return true;
}

// Frames go out to nobody: neither side is told.
void cut_cable(const Rank& rank) {
  require(shell("ip neigh replace " + address_of(1 - rank.number) +
                " lladdr 02:00:00:00:00:99 nud permanent dev cable" + std::to_string(rank.number)),
          "the cable cannot be cut");
}

// Both wait; for rank 0 there is something on its way besides, which keeps TCP from asking.
TEST(Link, CutIsNoticed) {
  const std::vector<Outcome> outcomes = run_ranks(2, [](const Rank& rank) {
    if (!lay_cable(rank)) throw std::runtime_error("no cable");
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.shared_memory = false});
    std::vector<float> data(100000, 1.0f);
    comm.run({CommKind::all_reduce, Reduction::sum, DType::f32, -1, data.data(), data.data(), 100000});
    require(data[0] == 2.0f, "a sum");
    swap(rank, 0);
    std::this_thread::sleep_for(200ms);  // acknowledgements are through
    cut_cable(rank);
    const auto begin = std::chrono::steady_clock::now();
    const int other = 1 - rank.number;
    if (rank.number == 0)
      comm.start({{CommKind::send, Reduction::sum, DType::f32, other, data.data(), nullptr, 100}});
    comm.start({{CommKind::recv, Reduction::sum, DType::f32, other, nullptr, data.data(), 100}});
    try {
      comm.finish();
    } catch (const Error& error) {
      require(error.code() == ErrorCode::comm_failed, error.what());
      return require(std::chrono::steady_clock::now() - begin < 60s, "noticed too late");
    }
    throw std::runtime_error("finish() returned");
  });
  for (const Outcome& outcome : outcomes) {
    if (outcome.message == "no cable") GTEST_SKIP() << "needs root, network namespaces and ip";
    EXPECT_EQ(outcome.message, "");
  }
}

}  // namespace
}  // namespace prun::test::link_test
