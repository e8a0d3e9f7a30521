// Implements the side that reads a record: the process' own, another's, or bytes that were kept.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "launch/flight.hpp"
#include "launch/flight_layout.hpp"

namespace prun {
namespace {

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

}  // namespace prun
