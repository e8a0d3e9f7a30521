// What the groups of ranks bring together at the rendezvous, until all of a group have come.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/launch/rendezvous_frames.hpp"

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
  // Those of a gather who have not come: the first, and all in words.
  struct Absent {
    int first = -1;
    std::string text;
  };

  // Adds what a rank brings; the gather that it is for. Throws comm_failed where no honest rank says that.
  Gather& add(int rank, int world, GatherRequest request, Clock::time_point now);
  // One that is not done and that the rank is still to come to; null: there is none.
  const Gather* waiting_for(int rank) const;
  // One that is not done and late; null: there is none.
  const Gather* late(Clock::time_point now) const;
  static Absent absent_of(const Gather& gather);
  void end_all();
  // Those that are done are forgotten.
  void sweep();
  // Visits the times at which each of them is late.
  template <class Body>
  void each_deadline(Body&& body) const {
    for (const auto& gather : gathers_) body(gather->deadline);
  }

 private:
  Gather& gather_for(const GatherRequest& request, Clock::time_point now);

  std::vector<std::unique_ptr<Gather>> gathers_;
};

}  // namespace prun
