// Declares one communicator: it takes operations, runs their plans over the wire, and fails if a member does.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "idle.hpp"
#include "meeting.hpp"
#include "member_watch.hpp"
#include "prun/comm.hpp"
#include "reach.hpp"
#include "run_queue.hpp"
#include "wire.hpp"

namespace prun::ucx {

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
