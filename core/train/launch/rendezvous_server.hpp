// Where the ranks of a run meet: it collects each group's contributions and hands them out, takes reports of
// failure and passes them on. One thread drives it: the launcher's loop, or a thread of rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "train/launch/gather_board.hpp"
#include "train/launch/remote_watch.hpp"
#include "train/launch/wire.hpp"

namespace prun {

struct RankReport {
  int rank = -1;
  ErrorCode code = ErrorCode::internal;
  std::string text;
};

class RendezvousServer {
 public:
  explicit RendezvousServer(int world);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  // A connected socket whose other end belongs to this rank.
  void adopt(int rank, FileDescriptor socket);
  // Strangers may knock here. At most world + 16 may be without a proof of the token at once; then the oldest
  // of them has to go. Each has two seconds.
  void listen(FileDescriptor listener, std::string token);

  // Becomes readable when process() has something to do.
  int fd() const;
  // Until process() should be called even so; -1: no need.
  int wait_ms() const;
  void process();

  // Since the last call; the ranks have been told. A gather that waited too long, or a collective in which
  // ranks did that tell what their flight records say, is a report by the rank that did not come.
  std::vector<RankReport> take_reports();
  // Ranks whose connection ended without a goodbye, and how, since the last call.
  std::vector<RankReport> take_lost();

  // Tells every rank, also those that come later. Only the first call counts.
  void fail(const FailureText& why);
  bool failed() const { return failure_.has_value(); }

  // That somebody came with another token, in a sentence; empty: nobody did.
  const std::string& wrong_token() const { return wrong_token_; }

  // No rank is connected, and all that were meant to come have been here.
  bool finished() const;
  bool all_came() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection;

  std::uint64_t add(FileDescriptor socket);
  void accept_all();
  void greet(FileDescriptor socket);
  void make_room();
  void pause_listening(bool pause);
  void read(Connection& connection);
  void write(Connection& connection);
  void take_hello(Connection& connection);
  void take_frame(Connection& connection, const Frame& frame);
  void take_report(int rank, const FailureText& failure);
  void take_gather(Connection& connection, GatherRequest request);
  void finish(const GatherBoard::Gather& gather);
  void fail_gathers_without(int rank);
  void expire();
  void expire_gathers(Clock::time_point now);
  void watch_for_hangs();
  void send(Connection& connection, std::string bytes);
  void drop(Connection& connection, const char* how = "ended without a word");
  void sweep();
  Connection* of_rank(int rank);

  int world_;
  FileDescriptor epoll_, listener_;
  std::string token_;
  bool paused_ = false;
  Clock::time_point resume_at_{};
  std::uint64_t next_id_ = 1;                                         // 0 is the listener
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  // by age
  std::vector<std::uint64_t> by_rank_;                                // 0: not connected
  std::vector<char> seen_, gone_;
  GatherBoard gathers_;
  std::vector<RankReport> reports_;
  std::vector<RankReport> lost_;
  std::optional<FailureText> failure_;
  RemoteWatch watch_;
  std::string wrong_token_;
};

}  // namespace prun
