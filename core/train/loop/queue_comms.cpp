#include "train/loop/queue_comms.hpp"

#include <algorithm>

namespace prun {

std::vector<QueueComm> QueueComms::of(const Plan& plan) {
  const std::vector<QueueInfo>& known = assembly_.plan().queues;
  const std::vector<QueueComm> all = of_full_step();
  std::vector<QueueComm> comms(plan.queues.size());
  for (std::size_t q = 0; q < comms.size(); ++q) {
    if (!plan.queues[q].communicates()) continue;
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const QueueInfo& queue) { return queue.name == plan.queues[q].name; });
    PRUN_CHECK(same != known.end(), "queue ", plan.queues[q].name, " is not one of the full step");
    comms[q] = all[static_cast<std::size_t>(same - known.begin())];
  }
  return comms;
}

}  // namespace prun
