// Implements the side that records.
#include "launch/flight.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "base/text.hpp"
#include "launch/socket.hpp"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- flight layout
// Defines the layout of the flight record in memory that launcher and rank share.
//
// Everything in the record is a 64-bit atomic word. An event's slot carries a sequence word: odd while it is
// written, 2 * number + 2 when event `number` is complete. Its fields are stored with release and loaded with
// acquire: a reader of a later event's field also sees that the sequence has moved on.

using FlightWord = std::atomic<std::uint64_t>;
static_assert(sizeof(FlightWord) == 8 && FlightWord::is_always_lock_free);

inline constexpr std::uint64_t flight_magic = 0x31746867696c6670;  // text "pflight1"
inline constexpr std::size_t flight_text_words = flight_text / 8;
inline constexpr std::size_t flight_member_words = flight_ranks / 64;

struct FlightTextWords {
  FlightWord words[flight_text_words];

  void store(std::string_view text) {
    char bytes[flight_text] = {};
    text.copy(bytes, flight_text);
    for (std::size_t i = 0; i < flight_text_words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, bytes + 8 * i, 8);
      words[i].store(word, std::memory_order_release);
    }
  }
};

struct FlightEventWords {
  FlightWord sequence, time, step, kind_and_group, number_in_group;
  FlightTextWords text;
};

struct FlightCommunicatorWords {
  FlightWord ready, id, entered, left, waiting, entered_time;
  FlightTextWords name, operation;
  FlightWord members[flight_member_words];
};

struct FlightLayout {
  FlightWord magic, next, step, in_step, saved_time, communicator_count;
  FlightCommunicatorWords communicators[flight_communicators];
  FlightEventWords events[flight_events];

  // Copies what is there, word by word.
  static std::vector<std::uint64_t> copy(const void* memory);
};

inline constexpr std::size_t flight_layout_words = sizeof(FlightLayout) / 8;

// An event that changes while it is copied comes out with sequence 0, as one that was never written.
std::vector<std::uint64_t> FlightLayout::copy(const void* memory) {
  std::vector<std::uint64_t> out(flight_layout_words);
  const FlightWord* from = static_cast<const FlightWord*>(memory);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = from[i].load(std::memory_order_acquire);
  const auto* layout = static_cast<const FlightLayout*>(memory);
  const std::size_t first =
      static_cast<std::size_t>(reinterpret_cast<const FlightWord*>(layout->events) - from);
  for (std::size_t i = 0; i < flight_events; ++i) {
    std::uint64_t& copied = out[first + i * sizeof(FlightEventWords) / 8];
    if (layout->events[i].sequence.load(std::memory_order_relaxed) != copied) copied = 0;
  }
  return out;
}

void* map_flight_record(int fd, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, sizeof(FlightLayout), protection, flags, fd, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorCode::unsupported, "cannot map the flight record: ", refusal_text(errno));
  return memory;
}

// Throws if a descriptor is not that of a record; the next function also if it cannot be mapped. fd < 0:
// private memory.
void check_flight_record(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(sizeof(FlightLayout)))
    throw_error(ErrorCode::bad_input, "descriptor ", fd, " is no flight record; start ranks with prun only");
}

FileDescriptor make_flight_record() {
  constexpr std::size_t bytes = sizeof(FlightLayout);
  FileDescriptor memory(::memfd_create("prun-flight", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open() || ::ftruncate(memory.get(), bytes) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_error(ErrorCode::unsupported, "cannot make a flight record of ", bytes,
                " bytes: ", refusal_text(errno));
  return memory;
}

namespace {

// ------------------------------------------------------------------- flight

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

namespace {

// ------------------------------------------------------------------- flight reading
// Implements the side that reads a record: the process' own, another's, or bytes that were kept.

constexpr int max_kind = static_cast<int>(FlightKind::note);

// Takes words from the front of a copy, in the order of the layout.
class Words {
 public:
  explicit Words(std::span<const std::uint64_t> words) : rest_(words) {}
  std::uint64_t next() {
    const std::uint64_t word = rest_.front();
    rest_ = rest_.subspan(1);
    return word;
  }
  std::int64_t next_signed() { return static_cast<std::int64_t>(next()); }
  // Reads a text up to the first zero; characters that do not belong on a terminal are replaced.
  std::string text() {
    char bytes[flight_text];
    for (std::size_t i = 0; i < flight_text_words; ++i) {
      const std::uint64_t word = next();
      std::memcpy(bytes + 8 * i, &word, 8);
    }
    const char* end = std::find(bytes, bytes + flight_text, '\0');
    return printable(std::string_view(bytes, static_cast<std::size_t>(end - bytes)), flight_text);
  }

 private:
  std::span<const std::uint64_t> rest_;
};

FlightCommunicator read_communicator(Words& words, bool* ready) {
  FlightCommunicator out;
  *ready = words.next() == 1;
  out.id = words.next();
  out.entered = words.next();
  out.left = words.next();
  out.waiting = words.next() == 1;
  out.entered_ns = words.next_signed();
  out.name = words.text();
  out.operation = words.text();
  for (std::size_t i = 0; i < flight_member_words; ++i) {
    const std::uint64_t word = words.next();
    for (int bit = 0; bit < 64; ++bit)
      if (word >> bit & 1) out.members.push_back(static_cast<int>(i) * 64 + bit);
  }
  return out;
}

std::optional<FlightEvent> read_event(Words& words, std::size_t slot) {
  FlightEvent out;
  const std::uint64_t sequence = words.next();
  out.time_ns = words.next_signed();
  out.step = words.next_signed();
  const std::uint64_t kind_and_group = words.next();
  out.sequence = words.next();
  out.text = words.text();
  out.number = sequence / 2 - 1;
  const std::uint64_t kind = kind_and_group >> 32;
  if (sequence == 0 || sequence % 2 == 1 || out.number % flight_events != slot) return {};
  if (kind < 1 || kind > max_kind) return {};
  out.kind = static_cast<FlightKind>(kind);
  out.group = static_cast<std::uint32_t>(kind_and_group);
  return out;
}

FlightSnapshot decode_words(std::span<const std::uint64_t> copy) {
  FlightSnapshot out;
  Words words(copy);
  if (words.next() != flight_magic) return out;
  words.next();
  out.step = words.next_signed();
  out.in_step = words.next() == 1;
  out.saved_ns = words.next_signed();
  words.next();
  for (std::size_t i = 0; i < flight_communicators; ++i) {
    bool ready = false;
    FlightCommunicator communicator = read_communicator(words, &ready);
    if (ready) out.communicators.push_back(std::move(communicator));
  }
  for (std::size_t i = 0; i < flight_events; ++i)
    if (auto event = read_event(words, i)) out.events.push_back(std::move(*event));
  std::sort(out.events.begin(), out.events.end(),
            [](const FlightEvent& a, const FlightEvent& b) { return a.number < b.number; });
  if (!out.events.empty() && (out.in_step || !call_under_way(out).empty()))
    out.stands_ns = std::max(out.events.back().time_ns, out.saved_ns);
  return out;
}

}  // namespace

FlightSnapshot FlightRecorder::snapshot() const { return decode_words(FlightLayout::copy(layout_)); }

FlightView::FlightView(int fd) {
  check_flight_record(fd);
  memory_ = map_flight_record(fd, false);
}

FlightView::FlightView(FlightView&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}

FlightView::~FlightView() {
  if (memory_) ::munmap(const_cast<void*>(memory_), sizeof(FlightLayout));
}

FlightSnapshot FlightView::snapshot() const { return decode_words(FlightLayout::copy(memory_)); }

FlightSnapshot decode_flight(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> words(flight_layout_words);
  if (bytes.size() < words.size() * 8) return {};
  std::memcpy(words.data(), bytes.data(), words.size() * 8);
  return decode_words(words);
}

namespace {

// ------------------------------------------------------------------- flight text
// Says in words what a record states.

std::string for_how_long(std::int64_t since_ns, std::optional<std::int64_t> now_ns) {
  if (!now_ns) return {};
  char text[48];
  const double seconds = (static_cast<double>(*now_ns) - static_cast<double>(since_ns)) * 1e-9;
  std::snprintf(text, sizeof text, " for %.1f s", std::clamp(seconds, 0.0, 1e9));
  return text;
}

std::string describe_call(const FlightSnapshot& snapshot) {
  if (const std::string call = call_under_way(snapshot); !call.empty()) return ", in '" + call + "'";
  for (std::size_t i = snapshot.events.size(); i-- > 0;) {
    const FlightEvent& event = snapshot.events[i];
    switch (event.kind) {
      case FlightKind::call_begin:
      case FlightKind::call_end: return ", after '" + event.text + "'";
      case FlightKind::note: return ", after the note '" + event.text + "'";
      case FlightKind::step_begin: return ", at its beginning";
      case FlightKind::collective_end: return ", after a collective";
      case FlightKind::collective_begin: return ", in " + event.text;
      case FlightKind::step_end: return "";
    }
  }
  return "";
}

}  // namespace

std::string call_under_way(const FlightSnapshot& snapshot) {
  std::multiset<std::string> ended;
  for (std::size_t i = snapshot.events.size(); i-- > 0;) {
    const FlightEvent& event = snapshot.events[i];
    if (event.kind == FlightKind::call_end) ended.insert(event.text);
    if (event.kind != FlightKind::call_begin) continue;
    const auto its_end = ended.find(event.text);
    if (its_end == ended.end()) return event.text;
    ended.erase(its_end);
  }
  return "";
}

std::string describe_flight(const FlightSnapshot& snapshot, std::optional<std::int64_t> now_ns) {
  std::string out = "before the first step";
  if (snapshot.step >= 0) out = detail::concat(snapshot.in_step ? "step " : "after step ", snapshot.step);
  const FlightCommunicator* inside = nullptr;
  for (const FlightCommunicator& communicator : snapshot.communicators)
    if (communicator.inside() && (!inside || communicator.entered_ns < inside->entered_ns))
      inside = &communicator;
  if (!inside) return out + describe_call(snapshot);
  return detail::concat(out, ", inside ", inside->operation, " (number ", inside->entered, " of '",
                        inside->name, "')", for_how_long(inside->entered_ns, now_ns));
}

std::string last_exchange(const FlightSnapshot& snapshot) {
  const FlightCommunicator* last = nullptr;
  for (const FlightCommunicator& communicator : snapshot.communicators)
    if (communicator.entered > 0 && (!last || communicator.entered_ns > last->entered_ns))
      last = &communicator;
  if (!last) return "";
  return detail::concat(last->operation, " (number ", last->entered, " of '", last->name, "'), ",
                        last->inside() ? "not done" : "done");
}

std::string it_was(const std::string& doing) {
  return (doing.starts_with("step") ? "it was in " : "it was ") + doing;
}

}  // namespace prun
