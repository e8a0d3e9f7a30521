// Defines the layout of the flight record in memory that launcher and rank share.
//
// Everything in the record is a 64-bit atomic word. An event's slot carries a sequence word: odd while it is
// written, 2 * number + 2 when event `number` is complete. Its fields are stored with release and loaded with
// acquire: a reader of a later event's field also sees that the sequence has moved on.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "launch/flight.hpp"

namespace prun {

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

// Throws if a descriptor is not that of a record; the next function also if it cannot be mapped. fd < 0:
// private memory.
void check_flight_record(int fd);
void* map_flight_record(int fd, bool writable);

}  // namespace prun
