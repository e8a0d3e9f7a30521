// Runs the lanes of a member: the queue's stream, which takes what arrives, and streams of its own, which
// push. schedule.hpp says what they do.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <string>

#include "cuda/graph.hpp"
#include "page.hpp"
#include "schedule.hpp"
#include "wires.hpp"

namespace prun::copies {

// ------------------------------------------------------------------- lanes

// Holds what a member reaches: everybody's buffer, and the words of all as the GPU sees them.
struct Reach {
  std::array<std::byte*, most_members> buffer{};
  Words* words = nullptr;       // for the host
  Words* seen_words = nullptr;  // for this GPU
};

class Lanes {
 public:
  // All of these must outlive it. `check` throws once the group has been given up: it is asked while a thread
  // waits for room.
  Lanes(const Driver& driver, const Layout& layout, const Reach& reach, int blocks,
        std::function<void()> check);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Names the taking lane's stream for what follows.
  void use(cudaStream_t stream) { taking_.stream = stream; }
  // Marks the end of what it was given, and says whether the GPU is there.
  void mark_end();
  bool is_idle() const;
  // Says how far each lane is, and which numbers there are. Any thread may ask.
  std::string state() const;

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
  using Count = std::atomic<std::uint64_t>;  // one thread counts, any may look
  using Counts = std::array<Count, most_members>;

  // Counts commands, so that a lane never has more than the driver takes without holding the thread, with the
  // context's lock held.
  struct Lane {
    cudaStream_t stream = nullptr;
    std::size_t number = 0;
    Count given{0};
    std::uint64_t marked = 0, known = 0;
  };
  struct PushingLane : Lane {
    explicit PushingLane(std::size_t own_number);
    ~PushingLane();
    PushingLane(const PushingLane&) = delete;
    PushingLane& operator=(const PushingLane&) = delete;

    cuda::Event joined;
    bool follows = true;  // has waited for the last fork
    bool reads = false;   // reads memory since the last join
  };

  void make_room(Lane& lane, std::uint64_t commands);
  // Returns the lane that pushes to a member, with room for so many commands, behind the last fork.
  PushingLane& pushing(std::int32_t to, std::uint64_t commands);
  std::int32_t rank() const { return layout_.rank(); }
  MemberWords& seen(std::int32_t member) const { return reach_.seen_words->of[member]; }

  const Driver& driver_;
  const Layout& layout_;
  const Reach& reach_;
  const int blocks_;
  const std::function<void()> check_;
  Lane taking_;
  std::deque<PushingLane> pushing_;
  cuda::Event forked_, ended_;
  Counts sent_{}, received_{}, granted_{}, placed_{}, landed_{};
};

// ------------------------------------------------------------------- sum
// Adds up what members hold, by a kernel.

// Refuses an operation that reduces a type of which no sums and maxima are made; `group` begins the message.
void check_can_fold(const CommOp& op, const std::string& group);

// Loads all kernels, while no stream waits.
void load_folds();

// Enqueues the sum or the maximum, in the order of the members, on so many blocks at most.
void fold(const Summands& summands, int blocks, cudaStream_t stream);

}  // namespace prun::copies
