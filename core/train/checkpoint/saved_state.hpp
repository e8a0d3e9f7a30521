// Writes a rank's part of the state into its file: copied whole before training goes on, or piece by piece
// beside the steps that follow.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "execute/plan_memory.hpp"
#include "execute/ticket.hpp"
#include "plan/persistent.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// ------------------------------------------------------------------- saved state

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

// ------------------------------------------------------------------- piece ring
// Passes what is saved through memory: threads that read get room for one piece after the other, and the
// thread that writes takes them out in that order. The memory limits how much is there at a time.

class PieceRing {
 public:
  // `bytes` are those of each piece, none more than the memory has. `read(n)` reports that the first n pieces
  // have been read; n only grows, and one thread calls it at a time.
  PieceRing(std::span<std::byte> memory, std::vector<std::int64_t> bytes,
            std::function<void(std::size_t)> read);

  struct Room {
    std::size_t piece = 0;
    std::span<std::byte> bytes;
  };
  // Waits for room for the next piece, and returns it; any number of threads may call it. It returns nothing
  // if there is no further piece, or all was given up.
  std::optional<Room> next_room();
  void filled(const Room& room);

  // Returns the next piece, once it is there; one thread calls it, and is done with the piece before. Nothing
  // means the same as above.
  std::optional<Room> take();

  // Gives all up: no thread waits any more, and nothing is handed out.
  void give_up();
  // Blocks the caller until the last piece has been read, or all was given up.
  void await_read();

 private:
  struct LocalPart {
    std::int64_t begin = 0, end = 0;  // bytes of the memory, with what is left free in front of them
    bool is_filled = false;
  };
  std::optional<std::int64_t> place_of_next() const;
  void release();

  const std::span<std::byte> memory_;
  const std::vector<std::int64_t> bytes_;
  const std::function<void(std::size_t)> read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LocalPart> held_;          // pieces from the first one in use on
  std::size_t done_ = 0;                // number of pieces that are done with
  std::size_t begun_ = 0, filled_ = 0;  // pieces that have room; the first so many are filled
  bool taken_ = false;                  // whether the first held piece is taken
  bool given_up_ = false;
};

// ------------------------------------------------------------------- saved pieces
// Cuts what a rank saves into the pieces in which it is read and written.

// Names the part of a slice that has its own checksum in the file: 4 MiB, or what the last one has left.
struct SavedPiece {
  std::size_t slice = 0;
  std::uint64_t chunk = 0;
  std::int64_t first = 0, count = 0;  // range of the slice's elements
  std::int64_t bytes = 0;
  std::int32_t read = 0;  // read of the plan that has its bytes
};

// Returns pieces in the order in which they must be read: that of the plan's reads, as far as there are any.
std::vector<SavedPiece> pieces_of(const std::vector<HeldSlice>& slices, const Plan& plan);

// Reads the piece as it is stored: a float that is stored in two halves gives those, one after the other.
void read_piece(const HeldSlice& slice, const SavedPiece& piece, const PlanMemory& memory,
                std::span<std::byte> to);

// Makes floats of two halves that lie one behind the other, from element `first` on.
void join_halves(std::span<const std::byte> halves, std::size_t first, std::span<float> joined);

}  // namespace prun
