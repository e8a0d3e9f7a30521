#include "plan/order/slots.hpp"

#include <algorithm>

namespace prun {

Slots::Slots(Plan& plan, const Work& work) : plan_(plan) {
  for (const ScheduleCall& call : work.calls) ++left_[key_of(call)];
  count_alive(work);
  for (std::size_t c = 0; c < plan.chunks.size(); ++c)
    plan.chunks[c].slots = alive_[root_of(static_cast<std::int32_t>(c))];
  for (const auto& [chunk, alive] : alive_) {
    for (std::int32_t slot = 0; slot < alive; ++slot) free_[chunk].insert(slot);
    for (std::int32_t slot = 0; slot <= alive; ++slot) free_stubs_[chunk].push_back(slot);
  }
}

std::int32_t Slots::root_of(std::int32_t chunk) const {
  while (plan_.chunks[chunk].follows >= 0) chunk = plan_.chunks[chunk].follows;
  return chunk;
}

void Slots::count_alive(const Work& work) {
  std::map<Key, std::int32_t> left = left_;
  std::map<std::int32_t, std::int32_t> now;
  for (const ScheduleCall& call : work.calls) {
    const Key key = key_of(call);
    if (left[key] == left_[key]) alive_[key.first] = std::max(alive_[key.first], ++now[key.first]);
    if (--left[key] == 0) --now[key.first];
  }
}

Slots::Held Slots::of(const ScheduleCall& call) {
  const Key key = key_of(call);
  const auto [entry, fresh] = held_.try_emplace(key);
  if (!fresh) return entry->second;
  std::set<std::int32_t>& free = free_.at(key.first);
  std::deque<std::int32_t>& stubs = free_stubs_.at(key.first);
  entry->second = {*free.begin(), stubs.front()};
  free.erase(free.begin());
  stubs.pop_front();
  return entry->second;
}

void Slots::done(const ScheduleCall& call) {
  const Key key = key_of(call);
  if (--left_.at(key) > 0) return;
  const auto entry = held_.find(key);
  free_.at(key.first).insert(entry->second.slot);
  free_stubs_.at(key.first).push_back(entry->second.stub);
  held_.erase(entry);
}

}  // namespace prun
