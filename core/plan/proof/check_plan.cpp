// Replays steps over shadow memory until the state repeats.
#include "plan/proof/check_plan.hpp"

#include <algorithm>
#include <deque>

#include "plan/proof/call_replay.hpp"
#include "plan/proof/check_effects.hpp"
#include "plan/proof/check_failure.hpp"
#include "plan/proof/check_lists.hpp"

namespace prun {
namespace {

class Replay {
 public:
  Replay(const Program& program, const Plan& plan) : program_(program), plan_(plan), calls_(program, plan) {}

  // A step that leaves memory as the one before did is repeated by the next, since waits are the same and
  // what is known to be done only grows. Staging buffers alternate, and only the host reads them: each must
  // be written at least once. Overlapping steps have more buffers, so that many steps must repeat; then a row
  // of steps ends, and another follows and ends. So do texts, whose first steps have more calls.
  void run() {
    check_lists(program_, plan_);
    const int rows = plan_.overlaps || has_first_steps() ? 2 : 1;
    for (int row = 0; row < rows; ++row) {
      if (plan_.overlaps)
        replay_row();
      else
        replay_text();
    }
    check_effects(program_, plan_, calls_.called());
  }

 private:
  void replay_row() {
    const std::int32_t depth = plan_.depth();
    for (std::int32_t before = 0; before < depth; ++before, ++step_) replay_round({before, 0});
    repeat(step_);
    const std::int64_t next = step_ + 1;
    for (std::int32_t ended = 1; ended <= depth; ++ended) {
      ++step_;
      replay_round({Round::many, ended});
    }
    step_ = next;
    calls_.forget_what_is_not_kept();
  }

  bool has_first_steps() const {
    return std::any_of(plan_.calls.begin(), plan_.calls.end(), [](const Call& call) { return call.to == 0; });
  }

  void replay_text() {
    repeat(step_);
    ++step_;
    calls_.forget_what_is_not_kept();
  }

  // Repeats steps from this one on until memory is as before.
  void repeat(std::int64_t first) {
    const std::int64_t most_steps = std::max(8, 3 * plan_.staging_copies);
    const std::size_t alike =
        plan_.overlaps ? static_cast<std::size_t>(plan_.staging_copies) : 1;  // number of steps
    std::deque<ProofState> before;
    for (step_ = first;; ++step_) {
      if (step_ == first + most_steps)
        fail_check("the state of memory does not repeat within ", most_steps, " steps");
      if (!plan_.overlaps) calls_.replay_save(step_);
      replay_round(!plan_.overlaps && step_ == first ? Round::beginning : Round::going_on);
      before.push_back(calls_.state(step_));
      if (before.size() > alike) {
        if (before.back() == before.front()) return;
        before.pop_front();
      }
      if (!plan_.overlaps) calls_.forget_what_is_not_kept();
    }
  }

  void replay_round(Round round) {
    if (plan_.overlaps) calls_.begin_round(rounds_++);
    for (const Call& call : plan_.calls) calls_.replay(call, step_, round);
    calls_.end_round(step_);
  }

  const Program& program_;
  const Plan& plan_;
  CallReplay calls_;
  std::int64_t step_ = 0;    // of the iteration
  std::int64_t rounds_ = 0;  // so far, if steps overlap
};

}  // namespace

void check_plan(const Program& program, const Plan& plan) { Replay(program, plan).run(); }

}  // namespace prun
