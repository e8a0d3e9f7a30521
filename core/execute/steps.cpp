#include "execute/steps.hpp"

#include <algorithm>

#include "prun/error.hpp"

namespace prun {

void Steps::start(Round round) {
  PRUN_CHECK(round.ended > 0 || steps_ - finished_ < running_, "step ", steps_, " would write where step ",
             finished_, " reads");
  const std::int64_t step = round.ended > 0 ? steps_ + round.ended - 1 : steps_++;
  runs_[static_cast<std::size_t>(rounds_) % runs_.size()] = {round, step};
  may_run_.store(++rounds_);
  may_run_.notify_all();
}

std::int64_t Steps::finish() {
  while (run(looked_at_).round.ended > 0) ++looked_at_;
  ++finished_;
  return looked_at_++;
}

void Steps::end() {
  may_run_.store(~rounds_);
  may_run_.notify_all();
}

bool Steps::may_run(std::int64_t round) const {
  std::int64_t started = may_run_.load();
  while (started >= 0 && started <= round) {
    may_run_.wait(started);
    started = may_run_.load();
  }
  return round < std::max(started, ~started);
}

}  // namespace prun
