// Takes out of a plan and its forecast what is reported to people and to programs alike.
#pragma once

#include <string>
#include <vector>

#include "estimate/forecast.hpp"
#include "program/flops.hpp"

namespace prun {

inline double step_flops(const Assembly& assembly) {
  return model_flops(assembly.unlowered()) * static_cast<double>(assembly.batch().accumulate);
}

inline double again_flops(const Assembly& assembly) {
  return recomputed_flops(assembly.unlowered()) * static_cast<double>(assembly.batch().accumulate);
}

// Calls body(queue, axis, bytes) for each queue on which a rank sends, with what it sends a step.
template <class Body>
void each_traffic(const Assembly& assembly, const Forecast& forecast, Body&& body) {
  const std::vector<QueueInfo>& queues = assembly.plan().queues;
  for (std::size_t q = 0; q < forecast.sent.size(); ++q)
    if (queues[q].communicates())
      body(queues[q], assembly.mesh().name(queues[q].axis), static_cast<double>(forecast.sent[q]));
}

// Returns what each rank of a pipeline needs, since its stages differ.
inline std::vector<std::int64_t> memory_of_stages(const Assembly& assembly) {
  std::vector<std::int64_t> all;
  for (int rank : assembly.mesh().group(assembly.rank(), assembly.pipeline()->axis))
    all.push_back(assembly.plan_of(rank).layout.bytes_in_memory());
  return all;
}

inline double tokens_per_second(const Assembly& assembly, const Simulation& simulation) {
  return static_cast<double>(assembly.batch().tokens()) / simulation.step_seconds;
}

}  // namespace prun
