#include "plan/order/slots.hpp"

#include <algorithm>

namespace prun {

Slots::Slots(Plan& plan, const Work& work) : plan_(plan) {
  if (plan.overlaps) {
    share_out_over_steps(plan, work);
    return;
  }
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

namespace {

// Returns the slot of a microbatch: consecutive microbatches are divided into `rows` rows whose lengths
// differ by one at most, and each row has the slots 0, 1, 2, …
std::int32_t place_in_row(std::int32_t microbatch, std::int32_t microbatches, std::int32_t rows) {
  const std::int32_t length = microbatches / rows, longer = microbatches % rows;
  const std::int32_t in_longer = longer * (length + 1);
  return microbatch < in_longer ? microbatch % (length + 1) : (microbatch - in_longer) % length;
}

// Is the range of a microbatch's passes, as positions in a period; `last` may be in the next period.
struct Alive {
  std::int32_t first = -1, last = -1;
};

// Returns true if two microbatches, of any steps, are alive at the same time.
bool meet(const Alive& a, const Alive& b, std::int32_t period) {
  for (const std::int32_t shift : {-period, 0, period})
    if (a.first <= b.last + shift && b.first + shift <= a.last) return true;
  return false;
}

Numbered<Alive> alive_in(const Work& work, std::int32_t chunk, std::int64_t microbatches) {
  Numbered<Alive> alive(microbatches);
  const NumberedView<PeriodPass> passes(work.period.passes);
  const NumberedView<ScheduleCall> calls(work.calls);
  const auto period = static_cast<std::int32_t>(passes.size());
  for (std::int32_t at = 0; at < period; ++at) {
    const PeriodPass& pass = passes[at];
    const ScheduleCall& call = calls[pass.call];
    if (call.chunk != chunk) continue;
    Alive& of = alive[call.microbatch];
    const std::int32_t when = at + pass.behind * period;
    of.first = of.first < 0 ? when : std::min(of.first, when);
    of.last = std::max(of.last, when);
  }
  return alive;
}

std::int32_t most_at_once(const std::vector<Alive>& alive, std::int32_t period) {
  std::int32_t most = 0;
  for (const Alive& a : alive) {
    const Alive begins{a.first, a.first};
    most = std::max(
        most, static_cast<std::int32_t>(std::count_if(
                  alive.begin(), alive.end(), [&](const Alive& b) { return meet(begins, b, period); })));
  }
  return most;
}

// Returns the slot of each microbatch, with as many rows, and so as few slots, as possible.
std::vector<std::int32_t> slots_in_rows(const std::vector<Alive>& alive, std::int32_t period,
                                        std::int32_t more) {
  const auto count = static_cast<std::int32_t>(alive.size());
  const std::int32_t least = std::min(count, most_at_once(alive, period) + more);
  for (std::int32_t rows = std::max(1, count / least);; --rows) {
    std::vector<std::int32_t> slots;
    slots.reserve(alive.size());
    for (std::int32_t i = 0; i < count; ++i) slots.push_back(place_in_row(i, count, rows));
    bool apart = true;
    for (std::size_t i = 0; i < alive.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) apart &= slots[i] != slots[j] || !meet(alive[i], alive[j], period);
    if (apart || rows == 1) return slots;
  }
}

}  // namespace

// Assigns slots where steps overlap: a microbatch has the same slot in each step, since addresses are planned
// once, and meets microbatches of the step before.
void Slots::share_out_over_steps(Plan& plan, const Work& work) {
  const auto period = static_cast<std::int32_t>(work.period.passes.size());
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const auto chunk = static_cast<std::int32_t>(c);
    if (work.period.at_once) {  // steps of one microbatch, whose sides are apart
      fixed_[{chunk, 0}] = {};
      continue;
    }
    PRUN_CHECK(plan.chunks[c].follows < 0, "steps overlap in chunks that follow each other");
    const Numbered<Alive> alive = alive_in(work, chunk, plan.microbatches);
    const std::vector<std::int32_t> own = slots_in_rows(alive, period, 0);
    std::vector<std::int32_t> stubs = slots_in_rows(alive, period, 1);
    plan.chunks[c].slots = *std::max_element(own.begin(), own.end()) + 1;
    if (*std::max_element(stubs.begin(), stubs.end()) > plan.chunks[c].slots) stubs = own;
    for (std::size_t i = 0; i < own.size(); ++i)
      fixed_[{chunk, static_cast<std::int32_t>(i)}] = {own[i], stubs[i]};
  }
}

Slots::Taken Slots::of(const ScheduleCall& call) {
  const Key key = key_of(call);
  if (!fixed_.empty()) return fixed_.at(key);
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
  if (!fixed_.empty()) return;
  const Key key = key_of(call);
  if (--left_.at(key) > 0) return;
  const auto entry = held_.find(key);
  free_.at(key.first).insert(entry->second.slot);
  free_stubs_.at(key.first).push_back(entry->second.stub);
  held_.erase(entry);
}

}  // namespace prun
