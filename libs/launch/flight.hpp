// The flight record states what a rank did last. It is in memory that the launcher made and the rank
// inherited, so it can be read after the rank was killed, and is gone when the last of both is gone. Writing
// takes a few atomic stores: no lock, no allocation, from any thread. Reading trusts nothing: a rank may be
// in the middle of a write, or have been overwritten by a stray pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/durable_file.hpp"

namespace prun {

enum class FlightKind : std::uint32_t {
  step_begin = 1,
  step_end,
  call_begin,
  call_end,
  collective_begin,
  collective_end,
  note,
};

inline constexpr std::size_t flight_events = 256;
inline constexpr std::size_t flight_communicators = 16;
inline constexpr std::size_t flight_text = 40;     // most bytes kept of a text
inline constexpr int flight_ranks = 1024;          // a communicator's members have numbers below it
inline constexpr std::uint32_t no_group = 0xffff;  // group of an event outside watched communicators

struct FlightEvent {
  std::uint64_t number = 0;  // number among all events of the rank
  std::int64_t time_ns = 0;  // time of the host's monotonic clock
  std::int64_t step = -1;
  FlightKind kind = FlightKind::note;
  std::uint32_t group = no_group;
  std::uint64_t sequence = 0;  // number of a collective in its communicator
  std::string text;
};

struct FlightCommunicator {
  std::string name;
  std::uint64_t id = 0;  // id of the whole name and the members: the same on each member
  std::vector<int> members;
  std::uint64_t entered = 0, left = 0;  // last collective entered and left; the first is 1
  bool waiting = false;                 // whether the rank has done its part, and waits for the others
  std::int64_t entered_ns = 0;
  std::string operation;  // operation of the last one entered

  bool inside() const { return entered > left; }
};

struct FlightSnapshot {
  std::int64_t step = -1;
  bool in_step = false;
  std::int64_t saved_ns = 0;  // when a save advanced last; 0: none has
  // Since when nothing has come while a step, or a call, was under way; 0: none is.
  std::int64_t stands_ns = 0;
  std::vector<FlightCommunicator> communicators;
  std::vector<FlightEvent> events;  // events, oldest first
};

std::int64_t flight_now_ns();

struct FlightLayout;

// Writes a flight record: this is the rank's side.
class FlightRecorder {
 public:
  FlightRecorder();                 // writes to private memory, which is not read from outside
  explicit FlightRecorder(int fd);  // writes to memory made by make_flight_record()
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void begin_step(std::int64_t step);
  void end_step();
  void begin_call(std::string_view name);
  void end_call(std::string_view name);
  void note(std::string_view text);
  // Notes that a save advances.
  void saving();

  // Adds a communicator, before its first collective. Members are ranks. Only the first 16 communicators are
  // watched, and ranks below flight_ranks; for others this leaves a note and returns a number that enter(),
  // wait() and leave() accept.
  int add_communicator(std::string_view name, std::span<const int> members);
  // These frame each collective, and one thread at a time calls them for each communicator. All members count
  // the same.
  void enter(int communicator, std::string_view operation);
  void leave(int communicator);
  // Notes, between these two, whether the rank has handed over its part and waits for the other members.
  void wait(int communicator, bool waiting);

  FlightSnapshot snapshot() const;

 private:
  void record(FlightKind kind, std::uint32_t group, std::uint64_t sequence, std::string_view text);

  FlightLayout* layout_;
};

// Makes a record for a rank: memory of fixed size without a name. Its size is sealed, so that the rank cannot
// pull it away from under a reader.
FileDescriptor make_flight_record();

// Reads a flight record: this is the launcher's side.
class FlightView {
 public:
  explicit FlightView(int fd);
  ~FlightView();
  FlightView(FlightView&& other) noexcept;
  FlightView& operator=(FlightView&&) = delete;

  FlightSnapshot snapshot() const;

 private:
  const void* memory_;
};

// Decodes what the bytes of a record say, whatever they are.
FlightSnapshot decode_flight(std::span<const std::byte> bytes);

// Returns the call that is under way, the last one begun if several queues have one; it is empty if there is
// none.
std::string call_under_way(const FlightSnapshot& snapshot);
// Returns the end of a sentence, such as "step 12, inside all_reduce (number 345 of 'dp')", "step 12, in
// forward" or "before the first step". With `now_ns` it also says for how long.
std::string describe_flight(const FlightSnapshot& snapshot, std::optional<std::int64_t> now_ns = {});
// Returns a text such as "all_reduce (number 345 of 'dp')": the exchange that was entered last, and whether
// it was left. It is empty if there was none.
std::string last_exchange(const FlightSnapshot& snapshot);
// Returns a sentence of such a description: "it was in step 12, in forward", "it was before the first step".
std::string it_was(const std::string& doing);

}  // namespace prun
