// Records what the queues of a rank did when, simulated or real, and computes what follows from it.
//
// *Exposed communication* of a step is the time for which the first device's queue that computes waits for
// queues that communicate, without what these wait for meanwhile themselves: copies and other devices, such
// as drives. A call's waits count one after the other, as they stand in the plan, each with the time that it
// holds the queue longer than those before it did. A peer that comes late counts: what is not computed
// meanwhile is lost, whatever the reason. Communication behind which something is computed does not count.
// *Exposed transfers* are what computing waits for, directly or behind communication, of copies and of what
// other devices compute.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/numbered.hpp"
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

// Holds the time for which a queue waits for another one.
struct HeldUp {
  std::int32_t by = -1;
  double begin = 0, end = 0;
};

// Returns the queue that a call's wait of that number is for, if it counts as exposed communication or as
// what communication waits for; else, and behind the last wait, -1.
std::int32_t counted_wait(const Plan& plan, const Call& call, std::size_t wait);
// Says whether such a time begins or ends before a wait of that number.
bool is_edge(const Plan& plan, const Call& call, std::size_t wait);

// Sums exposed communication: `computing` has the first device's waits for queues that communicate, and
// `communicating` what each of these waits for, by queue.
double exposed_communication(std::span<const HeldUp> computing,
                             const Numbered<std::vector<HeldUp>>& communicating);

StepTimes summarize(const Plan& plan, std::span<const Event> events, std::int64_t step);

// Returns for how long the first device computes, in a step, between the begin and the end of one of the
// others.
double seconds_beside(const Plan& plan, std::span<const Event> events, std::int64_t step,
                      std::vector<std::pair<double, double>> others);

}  // namespace prun
