// Passes what is saved through memory: threads that read get room for one piece after the other, and the
// thread that writes takes them out in that order. The memory limits how much is there at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace prun {

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

}  // namespace prun
