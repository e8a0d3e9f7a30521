#include "measure/kernel_timer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "estimate/moved_bytes.hpp"

namespace prun {

double trimmed_mean(std::vector<double> list) {
  if (list.empty()) return 0;
  std::sort(list.begin(), list.end());
  if (list.size() > 2) list.resize(list.size() - (list.size() + 9) / 10);
  return std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
}

double fastest_mean(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  list.resize((list.size() + 3) / 4);
  return trimmed_mean(std::move(list));
}

KernelTimer::KernelTimer(const Plan& plan, std::int64_t steps)
    : plan_(plan), began_(plan.queues.size()), calls_(plan.queues.size()) {
  for (const PlannedFunction& function : plan.functions) {
    first_.push_back(times_.size());
    times_.resize(times_.size() + function.steps.size());
  }
  for (const Call& call : plan.calls) {
    for (std::size_t i = 0; i < plan.steps(call).size(); ++i) ++of(call, i).launches;
    calls_[static_cast<std::size_t>(call.queue)].emplace_back().launches = 1;
  }
  const auto make_room = [steps](std::vector<Times>& list) {
    for (Times& times : list) times.seconds.reserve(static_cast<std::size_t>(times.launches * steps));
  };
  make_room(times_);
  for (std::vector<Times>& calls : calls_) make_room(calls);
}

KernelTimer::Times& KernelTimer::of(const Call& call, std::size_t index) noexcept {
  const auto function = static_cast<std::size_t>(call.function);
  const Piece& piece = plan_.functions[function].pieces[static_cast<std::size_t>(call.piece)];
  return times_[first_[function] + static_cast<std::size_t>(piece.first) + index];
}

void KernelTimer::Times::add(double one) noexcept {
  if (seconds.size() < seconds.capacity()) seconds.push_back(one);
}

void KernelTimer::end_kernel(std::int32_t queue, const Call& call, std::size_t index, double at) noexcept {
  double& began = began_[static_cast<std::size_t>(queue)];
  of(call, index).add(at - std::exchange(began, at));
}

void KernelTimer::end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept {
  const auto q = static_cast<std::size_t>(queue);
  const bool whole = step % 2 != 0;
  if (whole) calls_[q][static_cast<std::size_t>(call.position)].add(at - began_[q]);
}

void KernelTimer::forget() {
  for (Times& times : times_) times.seconds.clear();
  for (std::vector<Times>& calls : calls_)
    for (Times& times : calls) times.seconds.clear();
}

namespace {

// Returns whether a kernel does all that it is for. `settle` repeats ops of `speculate` in steps beyond the
// limit, and finds updates complete in those that are measured.
bool does_all(const Program& program, const PlannedFunction& function, const PlannedStep& step) {
  if (function.kind != FunctionKind::settle) return true;
  const std::vector<Id>& begun = program.segment(function.segment).ops(FunctionKind::speculate);
  return std::none_of(begun.begin(), begun.end(),
                      [&](Id op) { return program.op(op).def == program.op(step.op).def; });
}

}  // namespace

std::vector<KernelTime> KernelTimer::result(const Assembly& assembly) const {
  const Shares share = shares();
  ByShape by_shape;
  for (std::size_t f = 0; f < plan_.functions.size(); ++f)
    for (std::size_t p = 0; p < share[f].size(); ++p) {
      const Piece& piece = plan_.functions[f].pieces[p];
      for (auto s = static_cast<std::size_t>(piece.first); s < static_cast<std::size_t>(piece.last); ++s)
        if (const PlannedStep& step = plan_.functions[f].steps[s];
            does_all(assembly.program(), plan_.functions[f], step))
          add(assembly, step, times_[first_[f] + s], share[f][p], by_shape);
    }
  std::vector<KernelTime> all;
  for (auto& [key, entry] : by_shape) {
    entry.first.seconds /= entry.second;
    all.push_back(entry.first);
  }
  return all;
}

double KernelTimer::alone(const Call& call) const {
  const auto function = static_cast<std::size_t>(call.function);
  const Piece& piece = plan_.functions[function].pieces[static_cast<std::size_t>(call.piece)];
  double seconds = 0;
  for (auto s = static_cast<std::size_t>(piece.first); s < static_cast<std::size_t>(piece.last); ++s)
    seconds += trimmed_mean(times_[first_[function] + s].seconds);
  return seconds;
}

// Averages over a piece's calls. Calls that take no time were measured with the call after them.
KernelTimer::Shares KernelTimer::shares() const {
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::vector<std::vector<Mean>> means;
  for (const PlannedFunction& function : plan_.functions) means.emplace_back(function.pieces.size());
  std::vector<std::vector<Mean*>> together(plan_.queues.size());
  std::vector<double> kernels(plan_.queues.size(), 0);
  for (const Call& call : plan_.calls) {
    const auto q = static_cast<std::size_t>(call.queue);
    together[q].push_back(
        &means[static_cast<std::size_t>(call.function)][static_cast<std::size_t>(call.piece)]);
    kernels[q] += alone(call);
    const double seconds = trimmed_mean(calls_[q][static_cast<std::size_t>(call.position)].seconds);
    if (seconds == 0 || kernels[q] == 0) continue;
    for (Mean* mean : std::exchange(together[q], {})) {
      mean->sum += seconds / kernels[q];
      ++mean->count;
    }
    kernels[q] = 0;
  }
  Shares shares;
  for (const std::vector<Mean>& function : means) {
    shares.emplace_back();
    for (const Mean& mean : function) shares.back().push_back(mean.count ? mean.sum / mean.count : 1);
  }
  return shares;
}

// The simulation knows what holds such a copy up. Where the recipe's device computes on the host, others do
// as well, on the same cores: there the whole measured time is the price.
bool KernelTimer::moves_beside_others(const Assembly& assembly, const PlannedStep& step) const {
  if (assembly.device_info().host_memory || assembly.device_infos().size() == 1) return false;
  std::vector<bool> on_host;
  for (const DeviceInfo& device : assembly.device_infos()) on_host.push_back(device.host_memory);
  return link_of(assembly.program(), plan_, step) >= 0 ||
         host_bytes(assembly.program(), plan_, step, on_host) > 0;
}

void KernelTimer::add(const Assembly& assembly, const PlannedStep& step, const Times& times, double share,
                      ByShape& by_shape) const {
  if (step.exchange || times.seconds.empty()) return;
  const Op& op = assembly.program().op(step.op);
  const OpShape shape = assembly.program().local_shape(op);
  const DeviceInfo& device = assembly.device_infos()[static_cast<std::size_t>(step.device)];
  KernelTime time{std::string(device.name.view()),
                  kernel_name(*op.def, shape),
                  element_type(shape),
                  shape_key(*op.def, shape),
                  op.cost(shape),
                  0};
  const auto weight = static_cast<double>(times.launches);
  auto& [entry, launches] = by_shape.try_emplace({time.device, time.shape}, time, 0).first->second;
  const bool over_link =
      step.device == 0 && !device.host_memory && link_of(assembly.program(), plan_, step) >= 0;
  entry.over_link = over_link && (launches == 0 || entry.over_link);
  entry.seconds +=
      weight * share *
      (moves_beside_others(assembly, step) ? fastest_mean(times.seconds) : trimmed_mean(times.seconds));
  launches += weight;
}

}  // namespace prun
