// Lets the ranks of a run meet: it collects each group's contributions and hands them out, takes reports of
// failure and passes them on. One thread drives it: the launcher's loop, or a thread of rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "base/numbered.hpp"
#include "launch/hang_watch.hpp"
#include "launch/rendezvous_frames.hpp"

namespace prun {

// ------------------------------------------------------------------- connection
// Holds one connection of the rendezvous, in an epoll set. Nothing here blocks.

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Its events carry this id. Throws where the kernel has no room to watch it.
  Connection(int epoll, std::uint64_t id, FileDescriptor socket);

  std::uint64_t id() const { return id_; }
  void rename(std::uint64_t id);
  Clock::time_point since() const { return since_; }

  // Sends bytes; what does not go at once goes with write(), when there is room.
  void send(std::string_view bytes);
  void write();
  // Ends the connection once everything is sent.
  void close_when_sent() { closing_ = true; }

  // Returns what has come, as much of the buffer as there is; it is empty if there is nothing now, or the
  // connection has ended.
  std::string_view read(std::span<char> buffer);

  // Ends the connection, unless it has ended; `how` is for messages about it.
  void end(const char* how = "ended without a word");
  bool ended() const { return how_ != nullptr; }
  const char* how() const { return how_; }

 private:
  void watch(int operation);

  int epoll_;
  std::uint64_t id_;
  FileDescriptor socket_;
  Clock::time_point since_ = Clock::now();
  std::string unsent_;
  bool awaits_room_ = false, closing_ = false;
  const char* how_ = nullptr;
};

// ------------------------------------------------------------------- rank roster
// Holds the ranks' connections to the rendezvous: which ranks have come, which are gone, and how. Nothing
// here blocks.

struct RankReport {
  int rank = -1;
  ErrorCode code = ErrorCode::internal;
  std::string text;
};

class RankRoster {
 public:
  // Is called with each frame of a rank; if it throws, the rank's connection ends.
  using OnFrame = std::function<void(int rank, const Frame& frame)>;
  // Is called once for each rank whose connection has ended.
  using OnEnd = std::function<void(int rank)>;

  RankRoster(int epoll, int world, OnFrame on_frame, OnEnd on_end);

  // Returns the id of the rank's events: 1 + rank.
  static std::uint64_t id_of(int rank) { return static_cast<std::uint64_t>(rank) + 1; }

  // Adopts a connected socket whose other end belongs to this rank.
  void adopt(int rank, FileDescriptor socket);
  // Takes the connection of a rank that has proved who it is.
  void let_in(int rank, std::unique_ptr<Connection> connection);

  // Handles a rank's events.
  void process(int rank, bool has_room, bool has_more);
  // Sends to a rank, if it is here.
  void send(int rank, std::string_view bytes);
  // Must be called when a rank has said goodbye: its end is no loss.
  void take_goodbye(int rank) { ranks_[rank].good_bye = true; }
  // Closes connections that have ended; no other function may be using one.
  void sweep();

  bool has_come(int rank) const { return ranks_[rank].seen; }
  bool is_gone(int rank) const { return ranks_[rank].gone; }
  bool all_came() const;
  bool all_gone() const;
  // Returns how the rank's connection ended without a goodbye, since the last call of take_lost(), or null.
  const RankReport* lost(int rank) const;
  std::vector<RankReport> take_lost();

 private:
  struct Rank {
    std::unique_ptr<Connection> connection;  // null if the rank has not come, or is gone
    FrameReader frames{request_limit};
    bool seen = false, gone = false, good_bye = false;
  };

  void read(int rank);
  void take_end(int rank);

  int epoll_;
  OnFrame on_frame_;
  OnEnd on_end_;
  Numbered<Rank> ranks_;
  std::vector<RankReport> lost_;
};

// ------------------------------------------------------------------- reception
// Admits ranks to the rendezvous: unknown peers connect to its port and prove that they know the token, by
// which they become ranks. Nothing here blocks.

class Reception {
 public:
  using Clock = Connection::Clock;
  // Judges a peer that has proved the token.
  using Judge = std::function<Admission(const Hello&)>;
  // Is called with a peer that is let in, after the verdict was sent.
  using LetIn = std::function<void(int rank, std::unique_ptr<Connection>)>;

  // Ids of unknown peers begin at `first_id`; that of the port is 0.
  Reception(int epoll, int world, std::uint64_t first_id, Judge judge, LetIn let_in);

  // At most world + 16 peers may be without a proof of the token at once; then the oldest of them is dropped.
  // Each has two seconds.
  void listen(FileDescriptor listener, std::string token);

  // Handles the port's events, and those of unknown peers.
  void accept_all();
  void process(std::uint64_t id, bool has_room, bool has_more);
  void expire(Clock::time_point now);
  // Returns when expire() has something to do.
  std::optional<Clock::time_point> deadline() const;

  // A peer that came with another token than the ranks have.
  struct Impostor {
    std::int32_t rank = 0;  // that it says it is
    Clock::time_point since{};
    std::string sentence;
  };
  // Returns the last one, or null.
  const Impostor* impostor() const { return impostor_ ? &*impostor_ : nullptr; }

 private:
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Digest random{};
    std::string hello;
  };

  void greet(FileDescriptor socket);
  void make_room();
  void pause(bool paused);
  void read(Stranger& stranger);
  void take_hello(Stranger& stranger);
  Admission verdict_on(const Hello& hello, const Stranger& stranger);
  void sweep();

  int epoll_;
  std::size_t most_strangers_;
  std::uint64_t next_id_;
  Judge judge_;
  LetIn let_in_;
  FileDescriptor listener_;
  std::string token_;
  std::optional<Impostor> impostor_;
  bool paused_ = false;
  Clock::time_point resume_at_{};
  std::map<std::uint64_t, Stranger> strangers_;  // strangers by age
};

// ------------------------------------------------------------------- gather board
// Holds what groups of ranks contribute at the rendezvous, until all of a group have come.

class GatherBoard {
 public:
  using Clock = std::chrono::steady_clock;

  struct Gather {
    std::string channel;
    std::vector<std::int32_t> members;
    std::vector<std::string> parts;
    std::vector<char> here;
    std::size_t missing = 0;
    std::uint32_t limit_ms = 0;
    Clock::time_point deadline{};
    bool done = false;
  };
  // Names the members of a gather who have not come: the first, and all in words.
  struct Absent {
    int first = -1;
    std::string text;
  };

  // Adds a rank's contribution, and returns its gather. Throws comm_failed if no honest rank could say that.
  Gather& add(int rank, int world, GatherRequest request, Clock::time_point now);
  // Returns a gather that is not done and that the rank has not come to yet, or null.
  const Gather* waiting_for(int rank) const;
  // Returns a gather that is not done and late, or null.
  const Gather* late(Clock::time_point now) const;
  static Absent absent_of(const Gather& gather);
  void end_all();
  // Forgets gathers that are done.
  void sweep();
  // Visits the times at which each gather is late.
  template <class Body>
  void each_deadline(Body&& body) const {
    for (const auto& gather : gathers_) body(gather->deadline);
  }

 private:
  Gather& gather_for(const GatherRequest& request, Clock::time_point now);

  std::vector<std::unique_ptr<Gather>> gathers_;
};

// ------------------------------------------------------------------- rendezvous server

class RendezvousServer {
 public:
  explicit RendezvousServer(int world);
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  // Adopts a connected socket whose other end belongs to this rank.
  void adopt(int rank, FileDescriptor socket) { ranks_.adopt(rank, std::move(socket)); }
  // Listens for strangers, and admits those that prove to know the token.
  void listen(FileDescriptor listener, std::string token) {
    reception_.listen(std::move(listener), std::move(token));
  }

  // Returns a descriptor that becomes readable when process() has something to do.
  int fd() const { return epoll_.get(); }
  // Returns the time after which process() should be called even so; -1: no need.
  int wait_ms() const;
  void process();

  // Returns the reports since the last call; the ranks have been told. A gather that waited too long, or a
  // collective in which ranks did that report their flight records, counts as a report by the rank that did
  // not come.
  std::vector<RankReport> take_reports() { return std::exchange(reports_, {}); }
  // Returns ranks whose connection ended without a goodbye since the last call, and how it ended.
  std::vector<RankReport> take_lost() { return ranks_.take_lost(); }

  // Reports the failure to every rank, also those that come later. Only the first call counts.
  void fail(const FailureText& why);
  bool failed() const { return failure_.has_value(); }

  // Returns a sentence if some peer came with another token; otherwise it is empty.
  std::string wrong_token() const { return reception_.impostor() ? reception_.impostor()->sentence : ""; }

  // Says whether no rank is connected, and all that were expected have been here.
  bool finished() const { return ranks_.all_gone(); }
  bool all_came() const { return ranks_.all_came(); }

 private:
  using Clock = Connection::Clock;

  Admission judge(const Hello& hello) const;
  void let_in(int rank, std::unique_ptr<Connection> connection);
  void take_frame(int rank, const Frame& frame);
  void take_report(int rank, const FailureText& failure);
  void take_gather(int rank, GatherRequest request);
  void finish(const GatherBoard::Gather& gather);
  void fail_gathers_without(int rank);
  void expire();
  void expire_gathers(Clock::time_point now);
  std::optional<Clock::time_point> end_of_wait_for_impostor() const;
  void give_up_on_impostor(Clock::time_point now);
  void watch_for_hangs();
  void take_end(int rank);

  int world_;
  FileDescriptor epoll_;
  Reception reception_;
  RankRoster ranks_;
  GatherBoard gathers_;
  std::vector<RankReport> reports_;
  std::optional<FailureText> failure_;
  RemoteWatch watch_;
};

}  // namespace prun
