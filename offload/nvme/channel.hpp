// Moves pieces between a store and memory: it cuts them into transfers, keeps as many under way as each drive
// is allowed, checks how each has ended, goes on where one moved less than requested, tries again what
// failed, and gives up with a sentence. Reads and writes have channels, and so budgets, of their own, and
// earlier requests are moved first.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nvme/ring.hpp"

namespace prun::nvme {

class Store;

// Describes a piece: `address` is a multiple of the block; in a last block that is written in part, the rest
// becomes zero.
struct MovedPiece {
  std::int64_t address = 0;
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
};

// Goes through pieces from the first to the last.
class PieceCursor {
 public:
  PieceCursor() = default;
  explicit PieceCursor(std::span<const MovedPiece> pieces) : pieces_(pieces) {}

  // Returns what is left of the piece at hand; it has no bytes if none is left.
  MovedPiece rest() {
    while (piece_ < pieces_.size() && passed_ == pieces_[piece_].bytes) {
      ++piece_;
      passed_ = 0;
    }
    if (piece_ == pieces_.size()) return {};
    const MovedPiece& piece = pieces_[piece_];
    return {piece.address + passed_, piece.memory + passed_, piece.bytes - passed_};
  }
  void pass(std::int64_t bytes) { passed_ += bytes; }

 private:
  std::span<const MovedPiece> pieces_;
  std::size_t piece_ = 0;
  std::int64_t passed_ = 0;  // bytes of that piece
};

// Says whether memory that bytes are moved to is there until the channel is closed, whatever is thrown. Bytes
// that are read into other memory pass through the channel's own: a transfer that is lost may still write.
enum class Memory { stays, may_go };

class Channel {
 public:
  Channel(Store& store, std::unique_ptr<Ring> ring);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Registers memory that it will get again and again. Returns an empty text, or why the system refuses.
  std::string know(std::span<std::byte> memory) { return ring_->know(memory); }
  // Moves all of it; the caller waits. One thread calls it at a time.
  void move(bool write, std::span<const MovedPiece> pieces, Memory memory = Memory::stays);

  // Counts transfers that failed and were tried again.
  std::int64_t tried_again() const { return tried_again_; }
  // Counts bytes that passed through memory of the channel, since drives do not take them as they lie, or
  // they may not stay there.
  std::int64_t copied() const { return copied_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot;

  bool next_transfer(Slot& slot);
  void feed();
  bool give(std::size_t slot);
  void settle(const Ended& ended);
  void complete(Slot& slot);
  void try_again(std::size_t slot, std::int64_t result);
  void look_at_clocks();
  void lose(const Slot& slot, const std::string& why);
  void end(Slot& slot);
  std::chrono::microseconds patience() const;

  Store& store_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::size_t> waiting_;    // slots that the ring has no room for, or that pause
  std::vector<std::size_t> under_way_;  // transfers under way by file
  std::vector<Ended> ended_;
  std::int64_t tried_again_ = 0, copied_ = 0;
  // These belong to the current move.
  bool write_ = false;
  Memory memory_ = Memory::stays;
  PieceCursor pieces_;
  std::exception_ptr failure_;
  bool lost_ = false;  // whether a transfer of it is lost
};

}  // namespace prun::nvme
