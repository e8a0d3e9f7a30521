// SPDX-License-Identifier: Apache-2.0
// Names the kinds of communication: ops request them, plans list them, comm plugins run them.
#pragma once

#include <cstdint>

namespace prun {

enum class CommKind : std::uint8_t {
  all_reduce,      // `in` and `out` hold count elements; in == out is allowed
  all_gather,      // `in` holds count, `out` count * size; `in` may be its own place in `out`
  reduce_scatter,  // `in` holds count * size, `out` count; `out` may be its own place in `in`, which is spent
  broadcast,       // `out` holds count on every member; `peer` is the root
  all_to_all,      // `in` and `out` hold count * size, part i for and from member i
  send,            // `in` holds count, for `peer`
  recv,            // `out` holds count, from `peer`
  barrier,
};
inline constexpr int comm_kinds = 8;

constexpr const char* name_of(CommKind kind) {
  constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                   "all_to_all", "send",       "recv",           "barrier"};
  return names[static_cast<int>(kind)];
}

enum class Reduction : std::uint8_t { sum, max };

}  // namespace prun
