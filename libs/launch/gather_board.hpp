// Holds what groups of ranks contribute at the rendezvous, until all of a group have come.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/rendezvous_frames.hpp"

namespace prun {

class GatherBoard {
 public:
  using Clock = std::chrono::steady_clock;

  struct Gather {
    std::string channel;
    std::vector<std::int32_t> members;
    std::vector<std::string> parts;
    std::vector<char> here;
    std::size_t missing = 0;
    std::uint32_t limit_ms = 0;
    Clock::time_point deadline{};
    bool done = false;
  };
  // Names the members of a gather who have not come: the first, and all in words.
  struct Absent {
    int first = -1;
    std::string text;
  };

  // Adds a rank's contribution, and returns its gather. Throws comm_failed if no honest rank could say that.
  Gather& add(int rank, int world, GatherRequest request, Clock::time_point now);
  // Returns a gather that is not done and that the rank has not come to yet, or null.
  const Gather* waiting_for(int rank) const;
  // Returns a gather that is not done and late, or null.
  const Gather* late(Clock::time_point now) const;
  static Absent absent_of(const Gather& gather);
  void end_all();
  // Forgets gathers that are done.
  void sweep();
  // Visits the times at which each gather is late.
  template <class Body>
  void each_deadline(Body&& body) const {
    for (const auto& gather : gathers_) body(gather->deadline);
  }

 private:
  Gather& gather_for(const GatherRequest& request, Clock::time_point now);

  std::vector<std::unique_ptr<Gather>> gathers_;
};

}  // namespace prun
