// Strangers at the rendezvous: while two ranks meet and train, clients come with garbage, wrong tokens, huge
// lengths and half-open connections. The run ends with the bits of one that nobody disturbed.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "launch/rendezvous_frames.hpp"
#include "runs.hpp"

namespace prun::test::hostile_test {
namespace {

FileDescriptor connect_to_port(int port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{0, 200'000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return socket;
}

void send_some(const FileDescriptor& socket, const std::string& bytes) {
  [[maybe_unused]] const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::optional<Digest> greeting_of(const FileDescriptor& socket) {
  std::string bytes(greeting_size, '\0');
  if (::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) != static_cast<ssize_t>(bytes.size()))
    return {};
  return parse_greeting(bytes);
}

class Flood {
 public:
  explicit Flood(int port, unsigned seed) : port_(port), random_(seed), thread_([this] { run(); }) {}
  ~Flood() { end(); }
  int made() const { return made_; }
  void end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr std::size_t held_open = 64;

  void run() {
    while (!over_) {
      FileDescriptor socket = connect_to_port(port_);
      if (!socket.is_open()) {
        ::usleep(1000);
        continue;
      }
      ++made_;
      trouble(std::move(socket));
    }
  }

  std::string garbage(std::size_t most) {
    std::string bytes(random_() % (most + 1), '\0');
    for (char& c : bytes) c = static_cast<char>(random_());
    return bytes;
  }

  // A rank's hello that does not know the token, for a rank and a world that may be the run's.
  void lie(const FileDescriptor& socket) {
    const std::optional<Digest> random = greeting_of(socket);
    if (!random) return;
    const int world = random_() % 2 ? 2 : 1 << 30;
    send_some(socket, make_hello(std::string(40, 'x'), *random, static_cast<int>(random_() % 2), world,
                                 random_digest()));
    // Whatever the answer is: frames as if it had been a welcome, with a length beyond all limits.
    send_some(socket, std::string("\xff\xff\xff\x7f\x01\x00\x00\x00", 8) + garbage(64));
  }

  void trouble(FileDescriptor socket) {
    switch (random_() % 5) {
      case 0: return send_some(socket, garbage(300));
      case 1: return lie(socket);
      case 2: return send_some(socket, std::string(100'000, '\xff'));
      case 3: {  // resets
        const linger at_once{1, 0};
        ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        return send_some(socket, garbage(20));
      }
      default: break;
    }
    // Says a little, or nothing, and stays.
    if (random_() % 2) send_some(socket, garbage(hello_size - 1));
    held_.push_back(std::move(socket));
    if (held_.size() > held_open) held_.pop_front();
  }

  int port_;
  std::mt19937 random_;
  std::deque<FileDescriptor> held_;
  std::atomic<int> made_ = 0;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Connections until there are so many, or none come any more.
int wait_for(const Flood& flood, int wanted) {
  for (const auto start = Clock::now(); flood.made() < wanted && seconds_since(start) < patience;)
    ::usleep(1000);
  return flood.made();
}

// As long as it takes: 200 steps at least, which more and more strangers accompany.
TEST(Hostile, StrangersDoNotChangeABit) {
  const std::vector<std::string> sets = {"run.steps=1000000", "run.save_every=1000000",
                                         "observer.0.every=100"};
  const std::string recipe = recipe_file("hostile", 2, sets);
  const int wanted = is_long() ? 10'000 : 400, port = free_port();
  Flood flood(port, test_seed());
  PrunRun first({recipe}, torchrun_variables(0, 2, port));
  const int before = wait_for(flood, 50);
  PrunRun second({recipe}, torchrun_variables(1, 2, port));
  ASSERT_TRUE(first.process().says("step 200/")) << first.output() << second.output();
  const int made = wait_for(flood, before + wanted);
  const int steps = first.stop_and_save();
  flood.end();
  EXPECT_EQ(second.process().end(), 128 + SIGTERM) << second.output();
  std::printf("%d hostile connections in %d steps, %d of them before rank 1 came\n", made, steps, before);
  EXPECT_GE(before, 50);
  EXPECT_GE(made, before + wanted);
  ASSERT_GE(steps, 200) << first.output();
  PrunRun calm({recipe_file("calm", 2, sets), "--set", "run.steps=" + std::to_string(steps)});
  ASSERT_EQ(calm.process().end(), 0) << calm.output();
  EXPECT_TRUE(saved_tensors(out_folder("hostile")) == saved_tensors(out_folder("calm"))) << "other bits";
}

}  // namespace
}  // namespace prun::test::hostile_test
