#include "execute/steps.hpp"

#include <algorithm>

#include "prun/error.hpp"

namespace prun {

void Steps::start() {
  PRUN_CHECK(steps_ - finished_ < 2, "step ", steps_, " would write where step ", finished_, " reads");
  may_run_.store(++steps_);
  may_run_.notify_all();
}

void Steps::end() {
  may_run_.store(~steps_);
  may_run_.notify_all();
}

bool Steps::may_run(std::int64_t step) const {
  std::int64_t started = may_run_.load();
  while (started >= 0 && started <= step) {
    may_run_.wait(started);
    started = may_run_.load();
  }
  return step < std::max(started, ~started);
}

}  // namespace prun
