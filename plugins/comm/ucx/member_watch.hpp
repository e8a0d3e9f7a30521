// Watches the other members of a group: finds out who died, lost its connection, gave up, or left before an
// operation that needs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farewell.hpp"
#include "process_id.hpp"
#include "run_queue.hpp"

namespace prun::ucx {

// Says which member something is wrong with, and what.
struct Trouble {
  std::int32_t member = -1;
  std::string what;
};

class MemberWatch {
 public:
  MemberWatch(std::int32_t rank, std::int32_t size) : rank_(rank), farewells_(rank, size) {}

  // Adds the next member in the order of ranks; `watched` says that process.running() can tell whether it
  // lives.
  void add(const ProcessId& process, bool watched) { peers_.push_back({process, watched}); }
  // Must outlive the wire, or say goodbye before.
  void listen(Wire& wire) { farewells_.listen(wire); }

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
  Farewells farewells_;
};

}  // namespace prun::ucx
