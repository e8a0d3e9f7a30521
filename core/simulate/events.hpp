// Records what the queues of a rank did when, simulated or real, and computes what follows from it.
//
// *Exposed communication* of a step is the time for which the first device's queue that computes waits for
// queues that communicate. A call's waits count one after the other, as they stand in the plan, each with the
// time that it holds the queue longer than those before it did. A peer that comes late counts: what is not
// computed meanwhile is lost, whatever the reason. Communication behind which something is computed does not
// count. *Exposed transfers* are the same for those of the first device that compute, of copies and of what
// other devices compute.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Describes a call, or a wait before it. The saver's queue has the number behind those of the plan.
struct Event {
  std::int32_t queue = 0;
  std::int32_t position = 0;    // position of the call in its queue
  std::int32_t waits_for = -1;  // queue that is waited for; -1: this is the call
  std::int64_t step = 0;
  double begin = 0, end = 0;  // in seconds
};

// Holds seconds of one step.
struct StepTimes {
  std::vector<double> busy;     // time within its calls, by queue
  std::vector<double> waiting;  // time waiting for other queues, by queue
  double exposed_communication = 0;
  double exposed_transfers = 0;
};

// Says whether a wait between these queues makes computing wait for communication.
bool is_exposed(const Plan& plan, std::int32_t queue, std::int32_t waits_for);

// Says whether, before each of a call's waits and after the last one, those for queues that communicate begin
// to delay its queue or cease to.
std::vector<bool> edges_of_exposure(const Plan& plan, const Call& call);

StepTimes summarize(const Plan& plan, std::span<const Event> events, std::int64_t step);

// Returns for how long the first device computes, in a step, between the begin and the end of one of the
// others.
double seconds_beside(const Plan& plan, std::span<const Event> events, std::int64_t step,
                      std::vector<std::pair<double, double>> others);

}  // namespace prun
