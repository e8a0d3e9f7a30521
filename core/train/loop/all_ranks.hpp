// Records meetings of all ranks in the flight record.
#pragma once

#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/flight.hpp"

namespace prun {

// Lets all ranks meet, so that one that does not come is noticed as in the steps: meeting and connecting
// count as one collective, every later meeting as one of its own.
class AllRanks {
 public:
  AllRanks(FlightRecorder& flight, int world) : flight_(flight) {
    std::vector<int> all(static_cast<std::size_t>(world));
    std::iota(all.begin(), all.end(), 0);
    group_ = flight.add_communicator("all ranks", all);
  }

  template <class Body>
  auto meet(std::string_view occasion, Body&& body) {
    if (!std::exchange(inside_, true)) flight_.enter(group_, connected_ ? occasion : "meet and connect");
    auto result = body();
    if (connected_) leave();
    return result;
  }
  void connected() {
    leave();
    connected_ = true;
  }

 private:
  void leave() {
    if (std::exchange(inside_, false)) flight_.leave(group_);
  }

  FlightRecorder& flight_;
  int group_ = 0;
  bool inside_ = false, connected_ = false;
};

}  // namespace prun
