// Declares one communicator: it takes operations, runs their plans over the wire, and fails if a member does.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "meeting.hpp"
#include "prun/comm.hpp"
#include "reach.hpp"
#include "run_queue.hpp"
#include "wire.hpp"

namespace prun::ucx {

// ------------------------------------------------------------------- idle
// Decides how a thread waits for messages: it spins a little, then sleeps. A thread that spins on a contended
// core is put off it for a whole time slice; one that finds its core contended sleeps at once for its next
// waits.

class Idle {
 public:
  explicit Idle(std::chrono::microseconds limit) : limit_(limit) {}

  // Must be called when something happened: the next wait starts anew.
  void reset() { spinning_ = false; }

  // Must be called each time nothing happened. Returns true to look again, false to sleep.
  bool spin() {
    const auto now = Clock::now();
    if (!spinning_) {
      if (limit_.count() == 0 || (waits_to_sleep_ > 0 && waits_to_sleep_-- > 0)) return false;
      spinning_ = true;
      start_ = last_ = now;
    }
    if (now - last_ > contended_after) waits_to_sleep_ = contended_waits;
    last_ = now;
    if (waits_to_sleep_ > 0 || now - start_ >= limit_) return spinning_ = false;
    if (now - start_ >= polite_after) sched_yield();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds polite_after{5};
  static constexpr std::chrono::microseconds contended_after{100};
  static constexpr int contended_waits = 100;

  std::chrono::microseconds limit_;
  Clock::time_point start_, last_;
  bool spinning_ = false;
  int waits_to_sleep_ = 0;
};

// ------------------------------------------------------------------- communicator

struct Settings {
  Tuning tuning;
  std::chrono::microseconds spin{0};
  bool shared_memory = true;
};

using ContextSource = std::function<std::shared_ptr<Context>()>;

class GroupMember final : private TransferListener {
 public:
  GroupMember(const CommGroup& group, const ContextSource& context, const Settings& settings);
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;
  ~GroupMember();

  // Connections are there from the start; the memory that operations need is made here.
  void prepare(const CommOp* ops, std::int64_t count);
  void start(const CommOp* ops, std::int64_t count);
  void finish();
  void abort() noexcept;
  CommCounters counters() const { return runs_.retired(); }
  // Says how it reaches the others, as a line of Comm::examine(); a member that is alone says nothing.
  const std::string& reach() const { return reach_; }

 private:
  void connect(const CommGroup& group, const ContextSource& context, const Settings& settings);
  void greet();
  void describe(const std::vector<Member>& members, bool shares);
  void linger();

  void run_ready();
  void execute(RunningStep& step);
  void on_done(Transfer& transfer, ucs_status_t status) noexcept override;

  // Throws comm_failed if this communicator has failed or was aborted.
  void check_health();
  void check_members();
  void rest();
  void fail(std::int32_t member, const std::string& what);

  std::string name_, reach_;
  std::int32_t rank_, size_;
  RunQueue runs_;
  MemberWatch members_;
  std::unique_ptr<Wire> wire_;
  Idle idle_;
  std::chrono::steady_clock::time_point looked_at_members_{};
  std::chrono::milliseconds longest_nap_{100};  // without a ring it looks again after that

  ucs_status_t bad_status_ = UCS_OK;  // the status of a message, with the member it was for or from
  std::int32_t bad_member_ = -1;
  std::string failure_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace prun::ucx
