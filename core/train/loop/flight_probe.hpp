// Writes to the flight record what each queue does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "execute/communicators.hpp"
#include "launch/flight.hpp"
#include "plan/call_text.hpp"

namespace prun {

class FlightProbe final : public Probe {
 public:
  // Maps a queue's name to the group's number in the record.
  using Groups = std::map<std::string, int>;
  static Groups groups_of(FlightRecorder& flight, const Plan& plan, const Communicators& communicators) {
    Groups groups;
    for (std::size_t q = 0; q < plan.queues.size(); ++q)
      if (plan.queues[q].communicates())
        groups[plan.queues[q].name] =
            flight.add_communicator(plan.queues[q].name, communicators.members()[q]);
    return groups;
  }

  // `what` is written before what each call does.
  FlightProbe(FlightRecorder& flight, const Program& program, const Plan& plan, const Groups& groups,
              const std::string& what = {})
      : flight_(flight), first_(plan.calls.data()) {
    for (const Call& call : plan.calls) texts_.push_back(what + call_text(program, plan, call));
    for (const QueueInfo& queue : plan.queues)
      groups_.push_back(queue.communicates() ? groups.at(queue.name) : -1);
  }

  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    const int group = groups_[queue];
    if (group < 0)
      flight_.begin_call(text(call));
    else
      flight_.enter(group, text(call));
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    const int group = groups_[queue];
    if (group < 0)
      flight_.end_call(text(call));
    else
      flight_.leave(group);
  }
  void waits(std::int32_t queue, bool waiting, double) noexcept override {
    flight_.wait(groups_[queue], waiting);
  }

 private:
  const std::string& text(const Call& call) const { return texts_[static_cast<std::size_t>(&call - first_)]; }

  FlightRecorder& flight_;
  const Call* first_;
  std::vector<std::string> texts_;
  Numbered<int> groups_;  // groups by queue
};

}  // namespace prun
