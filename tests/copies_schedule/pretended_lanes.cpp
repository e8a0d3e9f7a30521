#include "pretended_lanes.hpp"

#include <chrono>
#include <thread>

#include "prun/error.hpp"

namespace prun::test {
namespace {

std::size_t at(std::int32_t member) { return static_cast<std::size_t>(member); }

}  // namespace

// ---------------------------------------------------------------- steps

void PretendedLanes::await(Lane& lane, const Number& number, std::uint64_t least) {
  lane.push_back({&number, least, [] {}, nullptr, 0});
}

void PretendedLanes::set(Lane& lane, Number& number, std::uint64_t value) {
  lane.push_back({nullptr, 0, [] {}, &number, value});
}

void PretendedLanes::copy(Lane& lane, std::byte* to, const std::byte* from, std::int64_t bytes) {
  const std::int64_t half = bytes / 2;
  lane.push_back({nullptr, 0, [=] { std::copy_n(from, half, to); }, nullptr, 0});
  lane.push_back({nullptr, 0, [=] { std::copy_n(from + half, bytes - half, to + half); }, nullptr, 0});
}

std::vector<PretendedLanes::Lane*> PretendedLanes::lanes() {
  std::vector<Lane*> all = {&taking_};
  for (PushingLane& lane : pushing_) all.push_back(&lane.steps);
  return all;
}

// ---------------------------------------------------------------- order of lanes

void PretendedLanes::fork() {
  set(taking_, passed_.emplace_back(0), 1);
  for (PushingLane& lane : pushing_) lane.follows = false;
}

PretendedLanes::Lane& PretendedLanes::pushing(std::int32_t to, bool reads) {
  PushingLane& lane = pushing_[at(layout_.lane_to(to))];
  if (!lane.follows) await(lane.steps, passed_.back(), 1);
  lane.follows = true;
  lane.reads |= reads;
  return lane.steps;
}

void PretendedLanes::join() {
  for (PushingLane& lane : pushing_) {
    if (!lane.reads) continue;
    // The last fork stays the last of `passed_`.
    Number& passed = passed_.emplace_front(0);
    set(lane.steps, passed, 1);
    await(taking_, passed, 1);
    lane.reads = false;
  }
}

// ---------------------------------------------------------------- messages

void PretendedLanes::push(std::int32_t to, const std::byte* from, std::int64_t bytes) {
  PRUN_CHECK(bytes <= layout_.slot_bytes(), "a message of ", bytes);
  const std::uint64_t number = ++sent_[at(to)];
  const std::int32_t me = layout_.rank();
  Lane& lane = pushing(to, bytes > 0);
  if (number > copies::slots)
    await(lane, has_freed_[at(to)], number - static_cast<std::uint64_t>(copies::slots));
  copy(lane, group_.buffer(to) + layout_.offset(to, me, number), from, bytes);
  set(lane, group_.member(to).has_arrived_[at(me)], number);
  bytes_sent_ += static_cast<std::uint64_t>(bytes);
}

const std::byte* PretendedLanes::await(std::int32_t from) {
  const std::uint64_t number = ++received_[at(from)];
  await(taking_, has_arrived_[at(from)], number);
  return group_.buffer(layout_.rank()) + layout_.offset(layout_.rank(), from, number);
}

void PretendedLanes::release(std::int32_t from) {
  set(taking_, group_.member(from).has_freed_[at(layout_.rank())], received_[at(from)]);
}

void PretendedLanes::grant(std::int32_t from) {
  set(taking_, group_.member(from).has_granted_[at(layout_.rank())], ++granted_[at(from)]);
}

void PretendedLanes::place(std::int32_t to, std::byte* place, const std::byte* from, std::int64_t bytes) {
  const std::uint64_t number = ++placed_[at(to)];
  Lane& lane = pushing(to, true);
  await(lane, has_granted_[at(to)], number);
  copy(lane, place, from, bytes);
  set(lane, group_.member(to).has_landed_[at(layout_.rank())], number);
  bytes_sent_ += static_cast<std::uint64_t>(bytes);
}

void PretendedLanes::land(std::int32_t from) { await(taking_, has_landed_[at(from)], ++landed_[at(from)]); }

void PretendedLanes::fold(const copies::Summands& summands) {
  PRUN_CHECK(summands.dtype == DType::i32 && summands.reduction == Reduction::sum, "a fold");
  const auto add = [=] {
    for (std::int64_t i = 0; i < summands.count; ++i) {
      std::int32_t sum = 0;
      for (std::int32_t rank = 0; rank < summands.members; ++rank)
        sum = sum * 3 + reinterpret_cast<const std::int32_t*>(summands.from[at(rank)])[i];
      reinterpret_cast<std::int32_t*>(summands.to)[i] = sum;
    }
  };
  taking_.push_back({nullptr, 0, add, nullptr, 0});
}

// ---------------------------------------------------------------- the group

PretendedGroup::PretendedGroup(std::int32_t size, std::int64_t buffer_bytes, unsigned seed,
                               std::int32_t lanes)
    : random_(seed) {
  for (std::int32_t rank = 0; rank < size; ++rank) {
    layouts_.emplace_back(rank, size, buffer_bytes, buffer_bytes, lanes);
    buffers_.emplace_back(static_cast<std::size_t>(buffer_bytes));
  }
  for (const copies::Layout& layout : layouts_) members_.emplace_back(*this, layout);
}

bool PretendedGroup::run(std::int32_t late) {
  for (;;) {
    std::vector<PretendedLanes::Lane*> ready;
    bool ended = true;
    for (std::int32_t rank = 0; rank < size(); ++rank)
      for (PretendedLanes::Lane* const lane : member(rank).lanes()) {
        ended &= lane->empty();
        if (rank != late && !lane->empty() && lane->front().may()) ready.push_back(lane);
      }
    if (ready.empty()) return ended;
    PretendedLanes::Lane& next = *ready[random_() % ready.size()];
    next.front().take();
    next.pop_front();
  }
}

bool PretendedGroup::run_on_threads() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto run_lane = [end](PretendedLanes::Lane& lane) {
    for (; !lane.empty(); lane.pop_front()) {
      for (int round = 0; !lane.front().may(); ++round) {
        if (std::chrono::steady_clock::now() > end) return;
        if (round < 50)
          std::this_thread::yield();
        else
          std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      lane.front().take();
    }
  };
  std::vector<std::thread> threads;
  std::vector<PretendedLanes::Lane*> all;
  for (PretendedLanes& member : members_)
    for (PretendedLanes::Lane* const lane : member.lanes()) {
      all.push_back(lane);
      threads.emplace_back([=] { run_lane(*lane); });
    }
  for (std::thread& thread : threads) thread.join();
  return std::all_of(all.begin(), all.end(), [](const auto* lane) { return lane->empty(); });
}

}  // namespace prun::test
