#include "ranks.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "plugin/loader.hpp"
#include "support/fake_options.hpp"

namespace prun::test {
namespace {

void send_all(int socket, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) throw std::runtime_error("a rank went away during the exchange");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int socket, void* data, std::size_t bytes) {
  const ssize_t got = ::recv(socket, data, bytes, MSG_WAITALL);
  if (got != static_cast<ssize_t>(bytes)) throw std::runtime_error("a rank went away during the exchange");
}

[[noreturn]] void run_child(int number, int size, const std::vector<SocketMesh>& meshes, int report,
                            const std::function<void(const Rank&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string message;
  try {
    body(Rank{number, size, meshes});
  } catch (const std::exception& error) {
    message = error.what();
    if (message.empty()) message = "an exception without words";
  }
  [[maybe_unused]] const ssize_t written = ::write(report, message.data(), message.size());
  ::_exit(message.empty() ? 0 : 1);
}

struct Child {
  pid_t process;
  int report;
};

// Reaps a process that is at its end. One that a driver holds in the kernel is not waited for.
bool is_reaped(pid_t process, int& status) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (::waitpid(process, &status, WNOHANG) != process) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::usleep(1000);
  }
  return true;
}

Outcome wait_for(const Child& child, std::chrono::steady_clock::time_point end) {
  Outcome outcome;
  std::vector<char> text(4096);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd file{child.report, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&file, 1, static_cast<int>(left.count())) <= 0) {
      ::kill(child.process, SIGKILL);
      outcome.message += "did not end in time";
      break;
    }
    const ssize_t got = ::read(child.report, text.data(), text.size());
    if (got <= 0) break;
    outcome.message.append(text.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  if (!is_reaped(child.process, status)) {
    ::close(child.report);
    outcome.message += outcome.message.empty() ? "its process does not end" : "; its process does not end";
    return outcome;
  }
  outcome.killed = WIFSIGNALED(status);
  if (outcome.killed && outcome.message.empty())
    outcome.message = std::string("ended by signal ") + std::to_string(WTERMSIG(status));
  ::close(child.report);
  return outcome;
}

}  // namespace

SocketMesh::SocketMesh(int ranks) : ranks_(ranks), sockets_(static_cast<std::size_t>(ranks * ranks), -1) {
  for (int i = 0; i < ranks; ++i)
    for (int j = 0; j < i; ++j) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        throw std::runtime_error("socketpair failed");
      sockets_[static_cast<std::size_t>(i * ranks + j)] = pair[0];
      sockets_[static_cast<std::size_t>(j * ranks + i)] = pair[1];
    }
}

SocketMesh::~SocketMesh() {
  for (const int socket : sockets_)
    if (socket >= 0) ::close(socket);
}

Status SocketExchange::all_gather(void* self, const void* mine, std::uint64_t bytes, void* all) {
  return guard(
      [&] { static_cast<SocketExchange*>(self)->gather(mine, bytes, static_cast<std::byte*>(all)); });
}

void SocketExchange::gather(const void* mine, std::uint64_t bytes, std::byte* all) const {
  if (member_ != 0) {
    send_all(socket_to(0), mine, bytes);
    return receive_all(socket_to(0), all, bytes * ranks_.size());
  }
  std::memcpy(all, mine, bytes);
  for (std::size_t i = 1; i < ranks_.size(); ++i) receive_all(socket_to(i), all + i * bytes, bytes);
  for (std::size_t i = 1; i < ranks_.size(); ++i) send_all(socket_to(i), all, bytes * ranks_.size());
}

TestComm::TestComm(const SocketMesh& mesh, const std::vector<int>& ranks, int member,
                   const PluginOptions& options) {
  FakeOptions section{{"chunk_kib", options.chunk_kib},
                      {"small_kib", options.small_kib},
                      {"spin_us", options.spin_us},
                      {"shared_memory", options.shared_memory}};
  comm_ = PluginLibrary::load(PRUN_TEST_PLUGINS "/libprun_comm_ucx.so")->create<CommInterface>(section.api());
  SocketExchange exchange(mesh, ranks, member);
  const ExchangeApi api = exchange.api();
  raise(comm_->create({"test.group", member, static_cast<std::int32_t>(ranks.size()), &api}, &communicator_));
}

TestComm::~TestComm() {
  if (const Status status = comm_->destroy(communicator_); !status.ok()) ADD_FAILURE() << status.message;
}

void TestComm::connect(const std::vector<CommOp>& ops) {
  raise(comm_->connect(communicator_, ops.data(), static_cast<std::int64_t>(ops.size()), nullptr));
}
void TestComm::start(const std::vector<CommOp>& ops) {
  raise(comm_->start(communicator_, ops.data(), static_cast<std::int64_t>(ops.size()), nullptr));
}
void TestComm::finish() { raise(comm_->finish(communicator_)); }
void TestComm::abort() { raise(comm_->abort(communicator_)); }

CommCounters TestComm::counters() {
  CommCounters counters;
  raise(comm_->counters(communicator_, &counters));
  return counters;
}

CommInfo TestComm::info() {
  CommInfo info;
  raise(comm_->info(&info));
  return info;
}

std::string TestComm::examine() {
  Text lines;
  raise(comm_->examine(&lines));
  return std::string(lines.view());
}

std::vector<int> Rank::everyone() const {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Outcome> run_ranks(int size, const std::function<void(const Rank&)>& body, int meshes,
                               std::chrono::seconds limit) {
  std::vector<SocketMesh> sockets;
  for (int i = 0; i < meshes; ++i) sockets.emplace_back(size);
  std::vector<Child> children;
  for (int number = 0; number < size; ++number) {
    int report[2];
    if (::pipe2(report, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("fork failed");
    if (process == 0) run_child(number, size, sockets, report[1], body);
    ::close(report[1]);
    children.push_back({process, report[0]});
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<Outcome> outcomes;
  for (const Child& child : children) outcomes.push_back(wait_for(child, end));
  return outcomes;
}

void expect_ranks(int size, const std::function<void(const Rank&)>& body, int meshes) {
  const std::vector<Outcome> outcomes = run_ranks(size, body, meshes);
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    EXPECT_EQ(outcomes[i].message, "") << "rank " << i << " of " << size;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace prun::test
