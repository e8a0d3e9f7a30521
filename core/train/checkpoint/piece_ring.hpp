// The way of what is saved through memory: threads that read get room for one piece after the other, and who
// writes takes them out in that order. What is there at a time is as much as the memory holds.
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
  // `bytes`: of each piece, none more than the memory has. `read(n)`: the first n pieces have been read; they
  // only grow, and it is called by one thread at a time.
  PieceRing(std::span<std::byte> memory, std::vector<std::int64_t> bytes,
            std::function<void(std::size_t)> read);

  struct Room {
    std::size_t piece = 0;
    std::span<std::byte> bytes;
  };
  // By any number of threads: room for the next piece, which waits for it. Nothing: there is no further one,
  // or all was given up.
  std::optional<Room> next_room();
  void filled(const Room& room);

  // By one thread: the next piece, once it is there; the one before it is done with. Nothing: as above.
  std::optional<Room> take();

  // Nobody waits any more, and nothing is handed out.
  void give_up();
  // Holds the caller until the last piece has been read, or all was given up.
  void await_read();

 private:
  struct Held {
    std::int64_t begin = 0, end = 0;  // of the memory, with what is left free in front of it
    bool is_filled = false;
  };
  std::optional<std::int64_t> place_of_next() const;
  void release();

  const std::span<std::byte> memory_;
  const std::vector<std::int64_t> bytes_;
  const std::function<void(std::size_t)> read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held> held_;               // pieces from the first that is not done with on
  std::size_t done_ = 0;                // with
  std::size_t begun_ = 0, filled_ = 0;  // pieces that have room; the first so many are filled
  bool taken_ = false;                  // the first of those held
  bool given_up_ = false;
};

}  // namespace prun
