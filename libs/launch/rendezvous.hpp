// Connects a rank with the other ranks, for what is small and rare: agreeing at the start, exchanging
// addresses of communicators, barriers, and saying why it fails. The other end is the launcher, or a thread
// in rank 0 if another launcher started the ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launch/flight.hpp"
#include "launch/identity.hpp"
#include "launch/rendezvous_frames.hpp"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- rendezvous

class Rendezvous {
 public:
  // Connects as the environment says: PRUN_RENDEZVOUS for ranks that prun started; otherwise rank 0 listens
  // on its address and the others prove the token to it (launch/rendezvous_frames.hpp), for `limit` at most.
  static std::unique_ptr<Rendezvous> connect(const Identity& identity, const Environment& environment,
                                             std::chrono::milliseconds limit = std::chrono::seconds(60));
  // Says goodbye. Rank 0 stays until the others have, for ten seconds at most.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Gathers: every member gives bytes (4 MiB at most) and gets those of all in the order of `members`, which
  // is the same for all and contains this rank. It blocks; members make their calls in the same order. Throws
  // comm_failed when a member, the server or the run is gone, and hang when a member does not come within
  // `limit`.
  std::vector<std::string> all_gather(std::string_view channel, std::span<const int> members,
                                      std::string_view mine,
                                      std::chrono::milliseconds limit = std::chrono::minutes(10));
  void barrier(std::string_view channel, std::span<const int> members,
               std::chrono::milliseconds limit = std::chrono::minutes(10)) {
    all_gather(channel, members, {}, limit);
  }

  // Reports in one sentence why this rank fails. comm_failed marks it as a consequence: another rank's own
  // reason comes first. It never throws: the rank is about to end anyway.
  void report_failure(ErrorCode code, std::string_view message) noexcept;

  // Reports to the server what this rank's flight record says. It does nothing while the last report has not
  // been answered: a server that stands still gets no more reports.
  void tell(const FlightReport& report) noexcept;
  // Returns for how long the server has not answered such a report, or zero if it has.
  std::chrono::milliseconds unanswered() const;
  // Acts as if the server had reported a failure.
  void give_up(const Error& why);

  // Sets a handler, which a thread of the rendezvous or of give_up() calls once, when another rank or the
  // server is gone or has failed; at once if that is so already. It is for aborting communicators. It must
  // not call the rendezvous.
  void on_failure(std::function<void(const Error&)> handler);

 private:
  struct State;
  explicit Rendezvous(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// ------------------------------------------------------------------- session
// Holds a rank's part in a run: its identity, its connection to the others, its flight record.

class Session {
 public:
  // Joins the run that the environment describes; returns null when this process is no rank. Blocks until the
  // rendezvous is reached.
  static std::unique_ptr<Session> join(const Environment& environment = process_environment());

  const Identity& identity() const { return identity_; }
  FlightRecorder& flight() { return *flight_; }
  Rendezvous& rendezvous() { return *rendezvous_; }

 private:
  Session() = default;

  Identity identity_;
  std::unique_ptr<FlightRecorder> flight_;  // destroyed last: the rendezvous' failure handler may write to it
  std::unique_ptr<Rendezvous> rendezvous_;
};

// ------------------------------------------------------------------- heartbeat
// Does a rank's part in the hang watch of a run that prun has not started (launch/hang_watch.hpp).

// Reports to the rendezvous, while it lives, what this rank's flight record says, and gives the run up when
// the rendezvous itself stands still while this rank waits in a collective. A rank that does not end within
// two seconds of a hang is ended with the exit code of one: what blocks it cannot be asked to stop.
class Heartbeat {
 public:
  // A limit of 0 is none. `failed` says why the run fails, once it does, and `stops` whether this rank was
  // asked to end.
  Heartbeat(Session& session, std::chrono::milliseconds limit, std::function<std::optional<Error>()> failed,
            std::function<bool()> stops);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void run();
  void tell();
  void check_rendezvous(const FlightSnapshot& flight);
  [[noreturn]] void end_process(const Error& why) const;

  Session& session_;
  std::chrono::milliseconds limit_;
  std::function<std::optional<Error>()> failed_;
  std::function<bool()> stops_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace prun
