// Declares one communicator: it takes operations, runs their plans over the wire, and notices who is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farewell.hpp"
#include "idle.hpp"
#include "library.hpp"
#include "meeting.hpp"
#include "prun/comm.hpp"
#include "scratch.hpp"
#include "tags.hpp"
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
  CommCounters counters() const;

 private:
  struct Peer {
    ProcessId process;
    bool watched = false;  // says that process.running() can tell whether it lives
    std::uint32_t sends = 0, receives = 0;
    bool gave_up = false;
  };

  void connect(const CommGroup& group, const ContextSource& context, const Settings& settings);
  void greet();
  void linger();

  void check_op(const CommOp& op) const;
  void admit(const CommOp& op);
  bool launch(Run& run);
  void execute(RunningStep& step);
  void run_ready();
  void complete(RunningStep& step);
  void retire(Run& run);

  // Throws comm_failed if this communicator has failed or was aborted.
  void check_health();
  void check_peers();
  // Says whether some operation waits for a member that has left.
  bool needs(const Run& run, std::int32_t member) const;
  void rest();
  void fail(std::int32_t member, const std::string& what);
  void on_done(Transfer& transfer, ucs_status_t status) noexcept override;

  std::string name_;
  std::int32_t rank_, size_;
  Library library_;
  ScratchPool scratch_;
  std::vector<Peer> peers_;
  Farewells farewells_;
  std::unique_ptr<Wire> wire_;
  Idle idle_;
  std::chrono::steady_clock::time_point looked_at_peers_{};

  std::uint32_t collectives_ = 0;
  std::vector<Run*> active_;   // were launched and are not done
  std::vector<Run*> waiting_;  // wait for scratch, in order
  std::vector<RunningStep*> ready_;
  std::size_t steps_ = 0;  // counts steps of all operations that are not done

  ucs_status_t bad_status_ = UCS_OK;  // the status of a message, with the member it was for or from
  std::int32_t bad_member_ = -1;
  std::string failure_;
  std::atomic<bool> aborted_ = false;
  std::atomic<std::uint64_t> operations_ = 0, bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace prun::ucx
