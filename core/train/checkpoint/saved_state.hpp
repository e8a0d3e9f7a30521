// Writes a rank's part of the state into its file: copied whole before training goes on, or piece by piece
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

// Holds, by number of the slices that a rank saves, the checksum of what lay there when the ranks that have
// it alike were compared; of the low half if it lies in two. Nothing means that it was not compared; an empty
// list means that none was.
using SavedSums = std::vector<std::optional<std::uint64_t>>;

class SavedState {
 public:
  virtual ~SavedState() = default;

  // Allocates all memory that a save takes; it is called before the first save at the latest.
  virtual void make_room() = 0;
  // Begins a save, while no step runs: what is written from now on is the state as it is now, which has these
  // sums.
  virtual void begin(const SavedSums& sums) = 0;
  // Writes the file on a thread of its own, which is blocked until all is in the file, or it is told to stop:
  // then it returns false. It calls wrote() now and then as it advances.
  virtual bool write(const std::filesystem::path& file, const std::stop_token& stop,
                     const std::function<void()>& wrote) = 0;
  // Blocks the caller for as long as no step may run.
  virtual void await_go_on() {}
};

// Makes the kind that run.save_memory names. Both write the same bytes. All arguments must outlive it.
std::unique_ptr<SavedState> saved_state(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate);

}  // namespace prun
