// Ranks for tests: processes forked before anything of UCX is there, connected by socket pairs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prun/comm.hpp"

namespace prun::test {

// A socket between each two ranks; one set for each thread that makes communicators.
class SocketMesh {
 public:
  explicit SocketMesh(int ranks);
  SocketMesh(SocketMesh&&) noexcept = default;
  ~SocketMesh();
  int between(int from, int to) const { return sockets_[static_cast<std::size_t>(from * ranks_ + to)]; }

 private:
  int ranks_;
  std::vector<int> sockets_;
};

// The ExchangeApi of one member of a group of ranks: the first member collects and hands out.
class SocketExchange {
 public:
  SocketExchange(const SocketMesh& mesh, std::vector<int> ranks, int member)
      : mesh_(mesh), ranks_(std::move(ranks)), member_(member) {}
  ExchangeApi api() { return {sizeof(ExchangeApi), this, &all_gather}; }

 private:
  static Status all_gather(void* self, const void* mine, std::uint64_t bytes, void* all);
  void gather(const void* mine, std::uint64_t bytes, std::byte* all) const;
  int socket_to(std::size_t member) const {
    return mesh_.between(ranks_[static_cast<std::size_t>(member_)], ranks_[member]);
  }

  const SocketMesh& mesh_;
  std::vector<int> ranks_;
  int member_;
};

struct PluginOptions {
  int chunk_kib = 512;
  int small_kib = 32;
  int spin_us = 20;
  bool shared_memory = true;
};

// A communicator of the plugin `ucx`, as the real loader makes it. Each call throws what the plugin returns.
class TestComm {
 public:
  TestComm(const SocketMesh& mesh, const std::vector<int>& ranks, int member,
           const PluginOptions& options = {});
  TestComm(const TestComm&) = delete;
  TestComm& operator=(const TestComm&) = delete;
  ~TestComm();

  void connect(const std::vector<CommOp>& ops);
  void start(const std::vector<CommOp>& ops);
  void finish();
  void run(const CommOp& op) {
    start({op});
    finish();
  }
  void abort();
  CommCounters counters();
  CommInfo info();
  std::string examine();

 private:
  std::shared_ptr<CommInterface> comm_;
  Communicator communicator_ = nullptr;
};

// What a rank works with.
struct Rank {
  int number;
  int size;
  const std::vector<SocketMesh>& meshes;

  std::vector<int> everyone() const;
};

// The result of one process: empty if its body returned.
struct Outcome {
  std::string message;
  bool killed = false;
};

// Forks `size` processes, runs the body in each and waits for them, so long at most.
std::vector<Outcome> run_ranks(int size, const std::function<void(const Rank&)>& body, int meshes = 1,
                               std::chrono::seconds limit = std::chrono::minutes(4));

// Expects that every rank's body returns.
void expect_ranks(int size, const std::function<void(const Rank&)>& body, int meshes = 1);

// For bodies: throws unless it holds.
void require(bool holds, const std::string& what);

}  // namespace prun::test
