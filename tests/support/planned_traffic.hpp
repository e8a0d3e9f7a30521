// Compares the bytes that ranks have sent with what their plans say.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "support/assembly_fixture.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun::test {

// Expects, after its first step, that each queue of a rank that communicates has sent what the plan says.
// `more` looks at what else is said of the queue.
inline void expect_planned_traffic(Trainer& trainer,
                                   const std::function<void(const QueueTraffic&)>& more = {}) {
  const Assembly& assembly = trainer.assembly();
  PluginHost host(plugins().places());
  each_comm(
      {assembly.recipe(), assembly.device_info(), host, assembly.mesh(), assembly.plan(), assembly.rank()},
      [&](const QueueTraffic& queue) {
        EXPECT_EQ(trainer.communicators()->counters(queue.queue).bytes_sent, queue.needs.bytes_sent);
        if (more) more(queue);
      });
}

}  // namespace prun::test
