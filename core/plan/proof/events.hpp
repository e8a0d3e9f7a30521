// Events of a rank's queues, simulated or measured, and what follows from them: busy, waiting, exposed.
//
// *Exposed communication* of a step is the time for which the first device's compute queue waits for
// communication, without the time that this itself waits for copies and other devices, such as drives. A
// call's waits count in the order of the plan, each with the time added to those before. A late peer counts:
// what is not computed meanwhile is lost. *Exposed transfers* are waits of computation, directly or through
// communication, for copies and other devices. Example: an all-reduce takes 5 ms, of which 3 ms run during
// backward: 2 ms are exposed.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/numbered.hpp"
#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------------- events

// A call, or a wait before it. The saver's queue is numbered after those of the plan.
struct Event {
  std::int32_t queue = 0;
  std::int32_t position = 0;    // in its queue
  std::int32_t waits_for = -1;  // other queue; -1: this is the call
  std::int64_t step = 0;
  double begin = 0, end = 0;  // seconds
};

// Seconds of one step.
struct StepTimes {
  std::vector<double> busy;     // in calls, by queue
  std::vector<double> waiting;  // for other queues, by queue
  double exposed_communication = 0;
  double exposed_transfers = 0;
};

// A queue's wait for another.
struct HeldUp {
  std::int32_t by = -1;
  double begin = 0, end = 0;
};

// Returns the queue of that wait of a call if it counts as exposed, or as what communication waits for;
// otherwise, and after the last wait, -1.
std::int32_t counted_wait(const Plan& plan, const Call& call, std::size_t wait);
// Returns true if such a time begins or ends before that wait.
bool is_edge(const Plan& plan, const Call& call, std::size_t wait);

// `computing`: the first device's waits for communication; `communicating`: by queue, what these queues wait
// for.
double exposed_communication(std::span<const HeldUp> computing,
                             const Numbered<std::vector<HeldUp>>& communicating);

StepTimes summarize(const Plan& plan, std::span<const Event> events, std::int64_t step);

// Returns how long the first device computes in a step while another device is busy.
double seconds_beside(const Plan& plan, std::span<const Event> events, std::int64_t step,
                      std::vector<std::pair<double, double>> others);

// ------------------------------------------------------------------- submission script
// Lists what a submitter hands to an asynchronous queue for a call, in order. QueueSubmitter runs the script;
// the proof that every step ends replays it (deadlock.hpp). Example: a forward of three pieces with a wait:
// wait, work 0, work 1, work 2, counter.

struct SubmittedPiece {
  enum class Kind : std::uint8_t { stamp, edge, wait, work, exchanges, event, counter };
  Kind kind = Kind::stamp;
  std::size_t number = 0;  // of the wait or work; collectives of the call, up to and with this piece
};

// A call hands this over besides its waits.
struct SubmittedCall {
  std::size_t works = 0, exchanges = 0;
  bool one_by_one = false;  // collectives start one by one
  bool stamps = false;      // stamps around waits, works and collectives, for timed probes
  bool edges = false;       // stamps at the ends of exposed communication
  bool event = false;       // asynchronous queues wait for the call
  bool counter = false;     // threads wait for it
};

// Replaces the script and reuses its memory: each call of each iteration has one.
void submission_script(const Plan& plan, const Call& call, std::int64_t iteration,
                       const SubmittedCall& submitted, std::vector<SubmittedPiece>& script);

}  // namespace prun
