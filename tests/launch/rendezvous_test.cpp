// Ranks that somebody else started, over TCP: they meet, strangers do not disturb them, and a rank or a link
// that is lost is noticed.
#include "launch/rendezvous.hpp"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "launch/process.hpp"
#include "launch/rendezvous_frames.hpp"
#include "launch/socket.hpp"
#include "support/free_port.hpp"

namespace prun::test::rendezvous_test {
namespace {

const std::string secret(64, '7');

// As torchrun would start it.
Process start(int rank, int world, int port, const std::vector<std::string>& role,
              const std::string& token = secret) {
  return Process(role, {{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(world)},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(world)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "29500"},
                        {"PRUN_MASTER_PORT", std::to_string(port)},
                        {"PRUN_TOKEN", token}});
}

std::vector<Process> start_all(int world, int port, const std::vector<std::string>& role) {
  std::vector<Process> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(start(rank, world, port, role));
  return ranks;
}

Deadline a_minute() { return Clock::now() + std::chrono::minutes(1); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RendezvousOverTcp, RanksMeet) {
  for (const int world : {1, 2, 3, 8}) {
    std::vector<Process> ranks = start_all(world, free_port(), {"gather", "20"});
    for (Process& rank : ranks) EXPECT_EQ(rank.end(), 0) << rank.output();
  }
}

TEST(RendezvousOverTcp, AWrongTokenIsRefusedAndTheRunGoesOn) {
  const int port = free_port();
  Process first = start(0, 2, port, {"gather", "5"});
  Process stranger = start(1, 2, port, {"gather", "5"}, std::string(64, '8'));
  EXPECT_EQ(stranger.end(), 2) << stranger.output();
  EXPECT_TRUE(contains(stranger.output(), "its token is another one")) << stranger.output();
  Process wrong_world = start(2, 3, port, {"gather", "5"});
  EXPECT_EQ(wrong_world.end(), 2) << wrong_world.output();
  EXPECT_TRUE(contains(wrong_world.output(), "its number of ranks is another one")) << wrong_world.output();
  Process second = start(1, 2, port, {"gather", "5"});
  EXPECT_EQ(second.end(), 0) << second.output();
  EXPECT_EQ(first.end(), 0) << first.output();
}

// The rank that the other one should have been will not come: it is not waited for as a slow one is.
TEST(RendezvousOverTcp, ARankWithAnotherTokenIsNotWaitedForLong) {
  const int port = free_port();
  const auto begin = Clock::now();
  Process first = start(0, 2, port, {"gather", "5"});
  Process other = start(1, 2, port, {"gather", "5"}, std::string(64, '8'));
  EXPECT_EQ(other.end(), 2) << other.output();
  EXPECT_EQ(first.end(), 2) << first.output();
  EXPECT_TRUE(contains(first.output(),
                       "the first to fail is rank 1: it has not come; a process that calls itself "
                       "rank 1 came with another token; give all ranks the same PRUN_TOKEN"))
      << first.output();
  EXPECT_LT(seconds_since(begin), 40);
}

TEST(RendezvousOverTcp, WithoutATokenItSaysHowToMakeOne) {
  Process rank(std::vector<std::string>{"gather", "1"}, {{"OMPI_COMM_WORLD_RANK", "0"},
                                                         {"OMPI_COMM_WORLD_SIZE", "2"},
                                                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(rank.end(), 2);
  EXPECT_TRUE(contains(rank.output(), "export PRUN_TOKEN=")) << rank.output();
}

TEST(RendezvousOverTcp, AKilledRankIsNamedByTheOthers) {
  for (const int victim : {0, 2}) {
    std::vector<Process> ranks = start_all(4, free_port(), {"steps"});
    for (Process& rank : ranks) ASSERT_TRUE(rank.says("runs")) << rank.output();
    const auto begin = Clock::now();
    ranks[static_cast<std::size_t>(victim)].signal(SIGKILL);
    for (int i = 0; i < 4; ++i) {
      Process& rank = ranks[static_cast<std::size_t>(i)];
      if (i == victim) continue;
      EXPECT_EQ(rank.end(), 12) << rank.output();
      EXPECT_TRUE(contains(rank.output(), victim == 0 ? "rank 0, which holds the rendezvous, is gone"
                                                      : "rank 2: ended without a word"))
          << rank.output();
    }
    EXPECT_LT(seconds_since(begin), 60);
  }
}

TEST(RendezvousOverTcp, ARankThatComputesIsToldOfAFailure) {
  std::vector<Process> ranks = start_all(3, free_port(), {"compute"});
  for (Process& rank : ranks) ASSERT_TRUE(rank.says("runs")) << rank.output();
  ranks[2].signal(SIGKILL);
  for (const std::size_t other : {0u, 1u}) {
    EXPECT_EQ(ranks[other].end(), 12) << ranks[other].output();
    EXPECT_TRUE(contains(ranks[other].output(), "was told: rank 2: ended without a word"))
        << ranks[other].output();
  }
}

TEST(RendezvousOverTcp, AFailureIsToldToAll) {
  std::vector<Process> ranks = start_all(3, free_port(), {"throw", "5", "1"});  // diverged
  EXPECT_EQ(ranks[1].end(), 15) << ranks[1].output();
  for (const std::size_t other : {0u, 2u}) {
    EXPECT_EQ(ranks[other].end(), 12) << ranks[other].output();
    EXPECT_TRUE(contains(ranks[other].output(), "rank 1: rank 1's own reason")) << ranks[other].output();
  }
  EXPECT_TRUE(contains(ranks[0].output(), "prun: the first to fail is rank 1: rank 1's own reason"));
}

// ------------------------------------------------------------------- a link that is cut

bool set_loopback(bool up) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "lo");
  request.ifr_flags = static_cast<short>(up ? IFF_UP | IFF_RUNNING : 0);
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

// In a network of its own; its exit code says how it went.
int cut_the_link_in_child() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWNET) != 0) return 77;
  if (!set_loopback(true)) return 77;
  std::vector<Process> ranks = start_all(3, 4000, {"nap", "6", "1"});
  for (Process& rank : ranks)
    if (!rank.says("runs")) return 1;
  ::usleep(300'000);  // now 0 and 2 wait for 1
  const auto cut = Clock::now();
  set_loopback(false);
  for (const std::size_t rank : {2u, 0u})
    if (ranks[rank].end() != 12 ||
        !contains(ranks[rank].output(), "does not answer any more: its host or the network between is gone"))
      return rank == 2 ? 2 : 3;
  std::printf("noticed after %.1f s\n", seconds_since(cut));
  return seconds_since(cut) < 12 ? 0 : 4;
}

TEST(RendezvousOverTcp, ALinkThatIsCutIsNoticed) {
  if (!std::getenv("PRUN_LONG")) GTEST_SKIP() << "takes ten seconds; PRUN_LONG=1 runs it";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(cut_the_link_in_child());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network of its own to be had here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// ------------------------------------------------------------------- strangers

// One of the things that come by on an open port.
void be_hostile(int fd, unsigned kind, std::mt19937& random) {
  std::string bytes;
  switch (kind % 6) {
    case 0: return;  // says nothing
    case 1: bytes = "GET / HTTP/1.1\r\n\r\n"; break;
    case 2: bytes = std::string(hello_size, '\xff'); break;
    case 3: bytes = make_hello(std::string(64, '8'), {}, 0, 4, {}); break;
    case 4: bytes = make_hello(secret, {}, 0, 4, {}).substr(0, hello_size / 2); break;
    case 5:
      for (int i = 0; i < 3000; ++i) bytes += static_cast<char>(random());
      break;
  }
  ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The run goes on all the while; the last rank joins in the middle of it.
TEST(RendezvousOverTcp, StrangersDoNotDisturb) {
  const int port = free_port();
  std::vector<Process> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 4, port, {"steps"}));
  ASSERT_TRUE(ranks[0].says("pid"));
  std::mt19937 random(5);
  const int strangers = std::getenv("PRUN_LONG") ? 10'000 : 400;
  std::vector<FileDescriptor> open(300);  // so many stay half open
  int connected = 0;
  for (int i = 0; i < strangers; ++i) {
    if (i == strangers / 2) ranks.push_back(start(3, 4, port, {"steps"}));
    auto socket = connect_to("127.0.0.1", port, a_minute());
    if (!socket) continue;
    ++connected;
    be_hostile(socket->get(), static_cast<unsigned>(i), random);
    if (i % 3 == 0) open[random() % open.size()] = std::move(*socket);
  }
  EXPECT_GT(connected, strangers * 9 / 10);
  for (Process& rank : ranks) EXPECT_TRUE(rank.says("runs")) << rank.output();
  ranks[1].signal(SIGTERM);
  for (Process& rank : ranks) EXPECT_EQ(rank.end(), 128 + SIGTERM) << rank.output();
}

TEST(RendezvousOverTcp, AStrangerThatSaysNothingIsDroppedAfterTwoSeconds) {
  const int port = free_port();
  Process rank = start(0, 2, port, {"gather", "1"});
  ASSERT_TRUE(rank.says("pid"));
  const auto begin = Clock::now();
  const auto socket = connect_to("127.0.0.1", port, a_minute());
  ASSERT_TRUE(socket);
  EXPECT_TRUE(receive(socket->get(), greeting_size, a_minute()));
  EXPECT_FALSE(receive(socket->get(), 1, a_minute()));
  EXPECT_GE(seconds_since(begin), 1.9);
  EXPECT_LT(seconds_since(begin), 30);
}

TEST(RendezvousOverTcp, NothingOfPrunAtThePortIsSaid) {
  const int port = free_port();
  const FileDescriptor impostor = listen_at("127.0.0.1", port);
  Process rank = start(1, 2, port, {"gather", "1"});
  pollfd entry{impostor.get(), POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 60'000), 0);
  const FileDescriptor connection(::accept(impostor.get(), nullptr, nullptr));
  const std::string text = "SSH-2.0-OpenSSH_9.2p1 and more of the same bytes";
  ::send(connection.get(), text.data(), text.size(), 0);
  EXPECT_EQ(rank.end(), 2);
  EXPECT_TRUE(contains(rank.output(), "is no rendezvous of prun")) << rank.output();
}

TEST(RendezvousOverTcp, TheListenerTakesItsAddressOnly) {
  const int port = free_port();
  Process rank = start(0, 2, port, {"gather", "1"});
  ASSERT_TRUE(rank.says("pid"));
  EXPECT_TRUE(connect_to("127.0.0.1", port, a_minute()));
  EXPECT_FALSE(connect_to("127.0.0.2", port, a_minute()));
}

}  // namespace
}  // namespace prun::test::rendezvous_test
