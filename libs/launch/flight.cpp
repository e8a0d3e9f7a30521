// Implements the side that records.
#include "launch/flight.hpp"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>

#include "base/random.hpp"
#include "launch/flight_layout.hpp"

namespace prun {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto release = std::memory_order_release;

std::uint64_t communicator_id(std::string_view name, std::span<const int> members) {
  std::uint64_t id = stream_id(name);
  for (const int member : members)
    id = stream_id(name.substr(0, 1), id * 31 + static_cast<std::uint64_t>(member));
  return id;
}

}  // namespace

std::int64_t flight_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

FlightRecorder::FlightRecorder() : FlightRecorder(-1) {}

FlightRecorder::FlightRecorder(int fd) {
  if (fd >= 0) check_flight_record(fd);
  // The memory is zero and all words are trivially usable as such.
  layout_ = static_cast<FlightLayout*>(map_flight_record(fd, true));
  layout_->step.store(~std::uint64_t{0}, relaxed);
  layout_->magic.store(flight_magic, release);
}

FlightRecorder::~FlightRecorder() { ::munmap(layout_, sizeof(FlightLayout)); }

void FlightRecorder::record(FlightKind kind, std::uint32_t group, std::uint64_t sequence,
                            std::string_view text) {
  const std::uint64_t number = layout_->next.fetch_add(1, relaxed);
  FlightEventWords& event = layout_->events[number % flight_events];
  // A slot whose writer was overtaken by a whole round is left to that writer.
  std::uint64_t held = event.sequence.load(relaxed);
  if (held % 2 == 1 || held > 2 * number) return;
  if (!event.sequence.compare_exchange_strong(held, 2 * number + 1, std::memory_order_acquire)) return;
  event.time.store(static_cast<std::uint64_t>(flight_now_ns()), release);
  event.step.store(layout_->step.load(relaxed), release);
  event.kind_and_group.store(static_cast<std::uint64_t>(kind) << 32 | group, release);
  event.number_in_group.store(sequence, release);
  event.text.store(text);
  event.sequence.store(2 * number + 2, release);
}

void FlightRecorder::begin_step(std::int64_t step) {
  layout_->step.store(static_cast<std::uint64_t>(step), relaxed);
  layout_->in_step.store(1, release);
  record(FlightKind::step_begin, no_group, 0, {});
}

void FlightRecorder::end_step() {
  record(FlightKind::step_end, no_group, 0, {});
  layout_->in_step.store(0, release);
}

void FlightRecorder::begin_call(std::string_view name) { record(FlightKind::call_begin, no_group, 0, name); }
void FlightRecorder::end_call(std::string_view name) { record(FlightKind::call_end, no_group, 0, name); }
void FlightRecorder::note(std::string_view text) { record(FlightKind::note, no_group, 0, text); }

void FlightRecorder::saving() {
  layout_->saved_time.store(static_cast<std::uint64_t>(flight_now_ns()), release);
}

int FlightRecorder::add_communicator(std::string_view name, std::span<const int> members) {
  const bool fits = std::all_of(members.begin(), members.end(),
                                [](int member) { return member >= 0 && member < flight_ranks; });
  const std::uint64_t index =
      fits ? layout_->communicator_count.fetch_add(1, relaxed) : std::uint64_t{flight_communicators};
  if (index >= flight_communicators) {
    note("not watched: " + std::string(name.substr(0, flight_text)));
    return static_cast<int>(flight_communicators);
  }
  FlightCommunicatorWords& to = layout_->communicators[index];
  to.id.store(communicator_id(name, members), relaxed);
  to.name.store(name);
  for (const int member : members)
    to.members[member / 64].fetch_or(std::uint64_t{1} << (member % 64), relaxed);
  to.ready.store(1, release);
  return static_cast<int>(index);
}

void FlightRecorder::enter(int communicator, std::string_view operation) {
  const auto index = static_cast<std::size_t>(communicator);
  if (index >= flight_communicators) return record(FlightKind::collective_begin, no_group, 0, operation);
  FlightCommunicatorWords& to = layout_->communicators[index];
  const std::uint64_t sequence = to.entered.load(relaxed) + 1;
  to.operation.store(operation);
  to.waiting.store(0, relaxed);
  to.entered_time.store(static_cast<std::uint64_t>(flight_now_ns()), relaxed);
  to.entered.store(sequence, release);
  record(FlightKind::collective_begin, static_cast<std::uint32_t>(communicator), sequence, operation);
}

void FlightRecorder::leave(int communicator) {
  const auto index = static_cast<std::size_t>(communicator);
  if (index >= flight_communicators) return record(FlightKind::collective_end, no_group, 0, {});
  FlightCommunicatorWords& to = layout_->communicators[index];
  const std::uint64_t sequence = to.entered.load(relaxed);
  to.left.store(sequence, release);
  record(FlightKind::collective_end, static_cast<std::uint32_t>(communicator), sequence, {});
}

void FlightRecorder::wait(int communicator, bool waiting) {
  const auto index = static_cast<std::size_t>(communicator);
  if (index < flight_communicators) layout_->communicators[index].waiting.store(waiting, release);
}

}  // namespace prun
