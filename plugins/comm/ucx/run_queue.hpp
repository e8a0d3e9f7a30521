// Holds the runs of operations that were started and are not finished: numbers them as the other members do,
// gives them scratch in the order in which they were started, and retires those that are done.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms.hpp"
#include "meeting.hpp"
#include "plan.hpp"
#include "prun/comm.hpp"
#include "wire.hpp"

namespace prun::ucx {

// ------------------------------------------------------------------- run
// Executes a plan once: a run knows which of its steps are done, and where its buffers are.

class Run;

struct RunningStep : Transfer {
  Run* run = nullptr;
  StepId step = no_step;
  std::uint32_t waits_for = 0;
};

class Run {
 public:
  explicit Run(const Plan& plan);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // `number` counts within its kind of traffic, which `tag` states; it is the same on both sides.
  void begin(const CommOp& op, std::uint64_t tag, std::uint32_t number);
  void use_scratch(std::byte* scratch) { buffers_[static_cast<std::size_t>(Buffer::scratch)] = scratch; }

  const Plan& plan() const { return *plan_; }
  const CommOp& op() const { return op_; }
  std::uint64_t tag() const { return tag_; }
  std::uint32_t number() const { return number_; }
  bool done() const { return left_ == 0; }
  std::vector<RunningStep>& steps() { return steps_; }

  std::byte* address(Place place) const {
    return buffers_[static_cast<std::size_t>(place.buffer)] + place.offset;
  }

  // The first adds to `ready` the steps that wait for nothing; the second those that waited for this step
  // alone.
  void add_first(std::vector<RunningStep*>& ready);
  void finish(const RunningStep& step, std::vector<RunningStep*>& ready);

 private:
  const Plan* plan_;
  CommOp op_;
  std::uint64_t tag_ = 0;
  std::uint32_t number_ = 0;
  std::array<std::byte*, 3> buffers_{};
  std::vector<RunningStep> steps_;
  std::size_t left_ = 0;
};

// ------------------------------------------------------------------- library
// Holds the plans of a communicator, each made when its kind and size are first seen, and runs of the plans
// to use again.

class Library {
 public:
  Library(std::int32_t rank, std::int32_t size, const Tuning& tuning)
      : rank_(rank), size_(size), tuning_(tuning) {}

  // Leaves a run of the operation ready to be taken, and returns its plan.
  const Plan& prepare(const CommOp& op);
  // Returns a run that is not in use. Allocates only if more operations of this kind and size are under way
  // than ever before.
  Run& take(const CommOp& op);
  void give_back(Run& run);
  // Returns what this member sends and needs for an operation.
  CommNeeds needs(const CommOp& op) const;

 private:
  struct Shelf {
    Plan plan;
    std::vector<std::unique_ptr<Run>> runs;
    std::vector<Run*> free;
  };
  using Key = std::tuple<CommKind, std::int64_t, std::int64_t, std::int32_t, bool>;

  Key key_of(const CommOp& op) const;
  bool in_place(const CommOp& op) const;
  Plan write(const CommOp& op) const;
  Shelf& shelf_of(const CommOp& op);

  std::int32_t rank_, size_;
  Tuning tuning_;
  std::map<Key, Shelf> shelves_;
};

// ------------------------------------------------------------------- shutdown notice
// A member that leaves says so, and how far it had got: a member that is done may go while others are still
// busy with each other, and that is no failure.

struct ShutdownNotice {
  std::uint32_t collectives = 0;         // counts those the member took part in
  std::uint32_t sent = 0, received = 0;  // count its sends to, and its receives from, the member it notifies
  std::uint32_t failed = 0;
};

// Farewells must outlive the wire, or be stopped before.
class ShutdownNotices final : private TransferListener {
 public:
  // Listens to all members but this one.
  ShutdownNotices(std::int32_t rank, std::int32_t size);
  void listen(Wire& wire);

  bool has_left(std::int32_t member) const { return received_[static_cast<std::size_t>(member)].done; }
  const ShutdownNotice& from(std::int32_t member) const {
    return received_[static_cast<std::size_t>(member)].message;
  }
  // Returns the message that send() sends to this member.
  ShutdownNotice& to(std::int32_t member) { return sent_[static_cast<std::size_t>(member)].message; }
  // Notifies all members that are still there, then listens no more. The time this takes is bounded.
  void send(Wire& wire);

 private:
  struct Note : Transfer {
    ShutdownNotice message;
    bool done = false;
  };
  void on_done(Transfer& transfer, ucs_status_t status) noexcept override;
  static void settle(Wire& wire, const std::vector<Note>& notes);

  std::int32_t rank_;
  std::vector<Note> received_, sent_;
};

// ------------------------------------------------------------------- scratch
// Holds memory for what arrives before it is added: a few blocks, each as large as was ever asked of it.

class ScratchPool {
 public:
  // This many operations that reduce proceed at a time; the others wait.
  static constexpr std::size_t blocks = 8;

  // Returns null if all blocks are in use.
  std::byte* take(std::int64_t bytes);
  void give_back(const std::byte* block);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::int64_t bytes = 0;
    bool used = false;
    std::byte* start() const;
  };
  std::array<Block, blocks> blocks_;
};

// ------------------------------------------------------------------- run queue

class RunQueue {
 public:
  RunQueue(std::int32_t rank, std::int32_t size, const Tuning& tuning);

  // Makes what an operation needs, so that add() allocates nothing.
  void prepare(const CommOp& op);
  void add(const CommOp& op);
  // Must be called when a step has been done: those that waited for it alone become ready.
  void complete(RunningStep& step) { step.run->finish(step, ready_); }
  void retire_done();

  // Calls `execute` for each step that is ready, and for those that become ready meanwhile.
  template <class Execute>
  void execute_ready(Execute&& execute) {
    for (std::size_t i = 0; i < ready_.size(); ++i) execute(*ready_[i]);
    ready_.clear();
  }

  bool has_ready() const { return !ready_.empty(); }
  bool has_steps() const { return steps_ > 0; }
  // Returns the runs that were launched: those that wait for scratch are not among them.
  const std::vector<Run*>& active() const { return active_; }
  // Returns what this member has started so far, as it tells the other one when it leaves.
  ShutdownNotice started_with(std::int32_t member) const;

  // May be called by any thread.
  CommCounters retired() const { return {operations_, bytes_sent_, bytes_received_}; }
  void forget_retired() { operations_ = bytes_sent_ = bytes_received_ = 0; }

 private:
  struct Peer {
    std::uint32_t sends = 0, receives = 0;
  };

  void number(Run& run, const CommOp& op);
  bool launch(Run& run);
  void retire(Run& run);

  Library library_;
  ScratchPool scratch_;
  std::vector<Peer> peers_;
  std::uint32_t collectives_ = 0;
  std::vector<Run*> active_;
  std::vector<Run*> waiting_;  // wait for scratch, in order
  std::vector<RunningStep*> ready_;
  std::size_t steps_ = 0;  // counts steps of all runs that are not done
  std::atomic<std::uint64_t> operations_ = 0, bytes_sent_ = 0, bytes_received_ = 0;
};

// ------------------------------------------------------------------- member watch
// Watches the other members of a group: finds out who died, lost its connection, gave up, or left before an
// operation that needs it.

// Says which member something is wrong with, and what.
struct Trouble {
  std::int32_t member = -1;
  std::string what;
};

class MemberWatch {
 public:
  MemberWatch(std::int32_t rank, std::int32_t size) : rank_(rank), notices_(rank, size) {}

  // Adds the next member in the order of ranks; `watched` says that process.running() can tell whether it
  // lives.
  void add(const ProcessId& process, bool watched) { peers_.push_back({process, watched}); }
  // Must outlive the wire, or say goodbye before.
  void listen(Wire& wire) { notices_.listen(wire); }

  // Returns what is wrong with one of the others, if anything is.
  std::optional<Trouble> look(Wire& wire, const RunQueue& runs);
  // Tells the others that this member leaves, and how far it had got.
  void say_goodbye(Wire& wire, const RunQueue& runs, bool broken);

 private:
  struct Peer {
    ProcessId process;
    bool watched = false;
    bool gave_up = false;
  };

  std::optional<Trouble> look_for_lost(Wire& wire) const;
  std::optional<Trouble> look_for_left(const RunQueue& runs);
  // Says whether an operation waits for a member that has left.
  bool needs(const Run& run, std::int32_t member) const;
  Peer& peer(std::int32_t member) { return peers_[static_cast<std::size_t>(member)]; }
  const Peer& peer(std::int32_t member) const { return peers_[static_cast<std::size_t>(member)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(peers_.size()); }

  std::int32_t rank_;
  std::vector<Peer> peers_;
  ShutdownNotices notices_;
};

// ------------------------------------------------------------------- tags
// Tags messages, so that each meets its own receive and no other:
//   traffic (2 bits), number of the operation (30), sender (12), number of the message within it (20)
// Collectives are numbered for the whole group; sends and receives for each pair and direction, since the
// other members know nothing of them. Numbers wrap, long after the operation that had them before is done.

enum class Traffic : std::uint8_t { collective, pair, shutdown_notice };

inline constexpr std::int32_t most_members = 1 << 12;
inline constexpr std::uint32_t most_messages = 1u << 20;

constexpr std::uint64_t make_tag(Traffic traffic, std::uint32_t operation) {
  return (static_cast<std::uint64_t>(traffic) << 62) |
         (static_cast<std::uint64_t>(operation & 0x3fffffffu) << 32);
}
constexpr std::uint64_t add_message(std::uint64_t tag, std::int32_t sender, std::uint32_t message) {
  return tag | (static_cast<std::uint64_t>(sender) << 20) | message;
}

}  // namespace prun::ucx
