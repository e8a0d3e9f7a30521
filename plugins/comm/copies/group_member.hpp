// Acts for one member of a group: its memory, its lanes, and how it gives up.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "destinations.hpp"
#include "lanes.hpp"
#include "meeting.hpp"

namespace prun::copies {

// Streams that push, of all groups of a rank: the driver has 32 channels, and what waits in one that streams
// share holds up all of these.
inline constexpr std::int32_t most_lanes = 16;

struct Settings {
  std::int64_t buffer_bytes = 0, message_bytes = 0;  // the most of both
  int blocks = 0;                                    // the most that a sum runs on
  bool direct = false;     // copies right into the others' results, where these can be mapped
  std::int32_t lanes = 1;  // the most that push

  // `groups` is how many groups a rank is in.
  Layout layout(std::int32_t rank, std::int32_t size, std::int32_t groups = 1) const {
    return {rank, size, buffer_bytes, message_bytes, std::min(lanes, std::max(1, most_lanes / groups))};
  }
};

class GroupMember {
 public:
  // This is collective.
  GroupMember(const Driver& driver, const CommGroup& group, const Settings& settings);
  ~GroupMember();
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;

  // Maps the others' memory that results lie in; this is collective.
  void attach(void* base);
  void detach();
  // Runs each operation once and holds the caller until that is done: kernels are loaded by it.
  void connect(std::span<const CommOp> ops, cudaStream_t stream);
  // Learns where the others' results lie; this is collective.
  void prepare(std::span<const CommOp> ops);
  void start(std::span<const CommOp> ops, cudaStream_t stream);
  // Releases all that waits, once the others know. Any thread may call it.
  void abort();
  // Throws if a member has given up. Any thread may call it.
  void check();
  // Says how far the lanes are. Any thread may ask.
  std::string state() const { return lanes_.state(); }

  const CommCounters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;

  void run(std::span<const CommOp> ops, std::span<const Places> places, cudaStream_t stream);
  void release_all();
  bool all_know() const;
  bool wait_for_the_gpu() const;
  void wait_for_the_others() const;
  MemberWords& words(std::int32_t member) const { return meeting_.reach().words->of[member]; }
  MemberWords& own_words() const { return words(layout_.rank()); }

  const std::string name_;
  const Layout layout_;
  std::atomic<bool> aborted_{false}, ends_{false};
  Meeting meeting_;
  std::optional<Destinations> destinations_;
  Lanes lanes_;
  std::mutex aborting_;
  std::thread releaser_;  // runs once the group was aborted
  CommCounters counters_;
};

}  // namespace prun::copies
