// Keeps the driver's channel of a stream from running full. A launch that finds no room there waits with the
// context's lock held, and every thread that calls the driver meanwhile waits as well: a copy that the stream
// itself waits for may be among them, and then nothing moves again. A thread that finds no room here waits
// without any lock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace prun::cuda {

class Room {
 public:
  // Bounds commands that are given and not known to be done, and says how many lie between two marks. The
  // driver takes 1024.
  static constexpr std::int64_t most = 512, mark_every = 64;

  // Holds the caller until so many more commands may be given. `mark(n)` has the stream say, behind all it
  // was given, that n are done; `done()` is what it said last; `pause()` is called again and again while
  // there is no room.
  template <class Mark, class Done, class Pause>
  void take(std::int64_t commands, Mark&& mark, Done&& done, Pause&& pause) {
    if (given_ - marked_ >= mark_every) mark(static_cast<std::uint64_t>(marked_ = given_));
    const std::int64_t counted = std::min(commands, most - 2 * mark_every);
    while (given_ + counted - known_ > most) {
      known_ = static_cast<std::int64_t>(done());
      if (given_ + counted - known_ > most) pause();
    }
    given_ += counted;
  }

 private:
  std::int64_t given_ = 0, marked_ = 0, known_ = 0;
};

}  // namespace prun::cuda
