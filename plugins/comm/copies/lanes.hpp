// Runs the two lanes of a member: the queue's stream, which takes what arrives, and a stream of its own,
// which pushes. schedule.hpp says what they do.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "cuda/graph.hpp"
#include "driver.hpp"
#include "page.hpp"
#include "schedule.hpp"

namespace prun::copies {

// Holds what a member reaches: everybody's buffer, and the words of all as the GPU sees them.
struct Reach {
  std::array<std::byte*, most_members> buffer{};
  Words* words = nullptr;       // for the host
  Words* seen_words = nullptr;  // for this GPU
};

class Lanes {
 public:
  // All of these must outlive it. `aborted` says that whoever waits for room gives up.
  Lanes(const Driver& driver, const Layout& layout, const Reach& reach, int blocks,
        const std::atomic<bool>& aborted);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Names the taking lane's stream for what follows.
  void use(cudaStream_t stream) { taking_.stream = stream; }
  // Marks the end of what it was given, and says whether the GPU is there.
  void mark_end();
  bool is_idle() const;

  void fork();
  void join();
  void push(std::int32_t to, const std::byte* from, std::int64_t bytes);
  const std::byte* await(std::int32_t from);
  void release(std::int32_t from);
  void grant(std::int32_t from);
  void place(std::int32_t to, std::byte* place, const std::byte* from, std::int64_t bytes);
  void land(std::int32_t from);
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes);
  void fold(const Summands& summands);

 private:
  // Counts commands, so that a lane never has more than the driver takes without holding the thread, with the
  // context's lock held.
  struct Lane {
    cudaStream_t stream = nullptr;
    std::size_t number = 0;
    std::uint64_t given = 0, marked = 0, known = 0;
  };

  void make_room(Lane& lane, std::uint64_t commands);
  std::int32_t rank() const { return layout_.rank(); }
  MemberWords& seen(std::int32_t member) const { return reach_.seen_words->of[member]; }

  const Driver& driver_;
  const Layout& layout_;
  const Reach& reach_;
  const int blocks_;
  const std::atomic<bool>& aborted_;
  Lane taking_, pushing_;
  cuda::Event forked_, joined_, ended_;
  std::array<std::uint64_t, most_members> sent_{}, received_{}, granted_{}, placed_{};
};

}  // namespace prun::copies
