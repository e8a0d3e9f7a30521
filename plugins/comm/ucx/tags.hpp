// Tags messages, so that each meets its own receive and no other:
//   traffic (2 bits), number of the operation (30), sender (12), number of the message within it (20)
// Collectives are numbered for the whole group; sends and receives for each pair and direction, since the
// other members know nothing of them. Numbers wrap, long after the operation that had them before is done.
#pragma once

#include <cstdint>

namespace prun::ucx {

enum class Traffic : std::uint8_t { collective, pair, farewell };

inline constexpr std::int32_t most_members = 1 << 12;
inline constexpr std::uint32_t most_messages = 1u << 20;

constexpr std::uint64_t make_tag(Traffic traffic, std::uint32_t operation) {
  return (static_cast<std::uint64_t>(traffic) << 62) |
         (static_cast<std::uint64_t>(operation & 0x3fffffffu) << 32);
}
constexpr std::uint64_t add_message(std::uint64_t tag, std::int32_t sender, std::uint32_t message) {
  return tag | (static_cast<std::uint64_t>(sender) << 20) | message;
}

}  // namespace prun::ucx
