// What each queue does, written down in the flight record.
#pragma once

#include <string>
#include <vector>

#include "execute/communicators.hpp"
#include "launch/flight.hpp"
#include "plan/call_text.hpp"

namespace prun {

class FlightProbe final : public Probe {
 public:
  FlightProbe(FlightRecorder& flight, const Assembly& assembly, const Communicators& communicators)
      : flight_(flight), first_(assembly.plan().calls.data()) {
    for (const Call& call : assembly.plan().calls)
      texts_.push_back(call_text(assembly.program(), assembly.plan(), call));
    const std::vector<QueueInfo>& queues = assembly.plan().queues;
    for (std::size_t q = 0; q < queues.size(); ++q)
      groups_.push_back(queues[q].communicates()
                            ? flight.add_communicator(queues[q].name, communicators.members()[q])
                            : -1);
  }

  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    const int group = groups_[static_cast<std::size_t>(queue)];
    if (group < 0)
      flight_.begin_call(text(call));
    else
      flight_.enter(group, text(call));
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    const int group = groups_[static_cast<std::size_t>(queue)];
    if (group < 0)
      flight_.end_call(text(call));
    else
      flight_.leave(group);
  }
  void waits(std::int32_t queue, bool waiting, double) noexcept override {
    flight_.wait(groups_[static_cast<std::size_t>(queue)], waiting);
  }

 private:
  const std::string& text(const Call& call) const { return texts_[static_cast<std::size_t>(&call - first_)]; }

  FlightRecorder& flight_;
  const Call* first_;
  std::vector<std::string> texts_;
  std::vector<int> groups_;  // by queue
};

}  // namespace prun
