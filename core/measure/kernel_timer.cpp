#include "measure/kernel_timer.hpp"

#include <algorithm>
#include <numeric>

namespace prun {

double trimmed_mean(std::vector<double> list) {
  if (list.empty()) return 0;
  std::sort(list.begin(), list.end());
  if (list.size() > 2) list.resize(list.size() - (list.size() + 9) / 10);
  return std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
}

KernelTimer::KernelTimer(const Plan& plan, std::int64_t steps) : plan_(plan), began_(plan.queues.size()) {
  for (const PlannedFunction& function : plan.functions) {
    first_.push_back(times_.size());
    times_.resize(times_.size() + function.steps.size());
  }
  for (const Call& call : plan.calls)
    for (std::size_t i = 0; i < plan.steps(call).size(); ++i) ++of(call, i).launches;
  for (Times& times : times_) times.seconds.reserve(static_cast<std::size_t>(times.launches * steps));
}

KernelTimer::Times& KernelTimer::of(const Call& call, std::size_t index) noexcept {
  const auto function = static_cast<std::size_t>(call.function);
  const Piece& piece = plan_.functions[function].pieces[static_cast<std::size_t>(call.piece)];
  return times_[first_[function] + static_cast<std::size_t>(piece.first) + index];
}

void KernelTimer::end_kernel(std::int32_t queue, const Call& call, std::size_t index, double at) noexcept {
  std::vector<double>& list = of(call, index).seconds;
  double& began = began_[static_cast<std::size_t>(queue)];
  if (list.size() < list.capacity()) list.push_back(at - began);
  began = at;
}

void KernelTimer::forget() {
  for (Times& times : times_) times.seconds.clear();
}

std::vector<KernelTime> KernelTimer::result(const Assembly& assembly) const {
  ByShape by_shape;
  for (std::size_t f = 0; f < plan_.functions.size(); ++f)
    for (std::size_t s = 0; s < plan_.functions[f].steps.size(); ++s)
      add(assembly, plan_.functions[f].steps[s], times_[first_[f] + s], by_shape);
  std::vector<KernelTime> all;
  for (auto& [key, entry] : by_shape) {
    entry.first.seconds /= entry.second;
    all.push_back(entry.first);
  }
  return all;
}

void KernelTimer::add(const Assembly& assembly, const PlannedStep& step, const Times& times,
                      ByShape& by_shape) {
  if (step.exchange || times.seconds.empty()) return;
  const Op& op = assembly.program().op(step.op);
  const OpShape shape = assembly.program().local_shape(op);
  const DeviceInfo& device = assembly.device_infos()[static_cast<std::size_t>(step.device)];
  KernelTime time{std::string(device.name.view()),
                  std::string(op.kind()),
                  element_type(shape),
                  shape_key(op.kind(), shape),
                  {},
                  0};
  raise(op.def->cost(&shape, &time.cost));
  const auto weight = static_cast<double>(times.launches);
  auto& [entry, launches] = by_shape.try_emplace({time.device, time.shape}, time, 0).first->second;
  entry.seconds += weight * trimmed_mean(times.seconds);
  launches += weight;
}

}  // namespace prun
