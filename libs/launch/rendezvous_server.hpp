// Lets the ranks of a run meet: it collects each group's contributions and hands them out, takes reports of
// failure and passes them on. One thread drives it: the launcher's loop, or a thread of rank 0.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "launch/connection.hpp"
#include "launch/gather_board.hpp"
#include "launch/rank_roster.hpp"
#include "launch/reception.hpp"
#include "launch/remote_watch.hpp"
#include "launch/rendezvous_frames.hpp"

namespace prun {

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
