// Brings a rank's part of the state into its file: copied whole before training goes on, or piece by piece
// beside the steps that follow.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "execute/save_gate.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

class PlanMemory;

// By number of the slices that a rank saves: the checksum that what lies there had when the ranks that have
// it alike were compared, of the low half where it lies in two. Nothing: it was not compared; empty: none
// was.
using SavedSums = std::vector<std::optional<std::uint64_t>>;

class SavedState {
 public:
  virtual ~SavedState() = default;

  // Allocates all memory that a save takes; it is called before the first save at the latest.
  virtual void make_room() = 0;
  // While no step runs: what is written from now on is the state as it is now, which has these sums.
  virtual void begin(const SavedSums& sums) = 0;
  // By a thread of its own, which is held until all is in the file, or it is told to stop: false then. Calls
  // wrote() now and then as it gets on.
  virtual bool write(const std::filesystem::path& file, const std::stop_token& stop,
                     const std::function<void()>& wrote) = 0;
  // Holds the caller for as long as no step may run.
  virtual void await_go_on() {}
};

// Makes the one that run.save_memory names. Both write the same bytes. All arguments must outlive it.
std::unique_ptr<SavedState> saved_state(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate);

}  // namespace prun
