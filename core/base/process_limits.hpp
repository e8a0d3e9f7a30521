// Checks what the system allows this process, before anything else runs in it.
#pragma once

#include <cstdint>

namespace prun {

// Every thread needs so much: several times what was seen to be enough for prun, its plugins and their
// libraries.
inline constexpr std::int64_t least_stack_bytes = 1 << 20;

// Returns the stack of a thread that is started without stating one.
std::int64_t stack_of_threads();

// Raises the soft limit on stacks to the least if the hard one allows it, for the main thread, later ones and
// the processes that this one starts; otherwise throws unsupported. Where address space is limited, all
// threads share one heap: each one's own would take 64 MiB of addresses or, once they are few, none, so the
// need of a run would be unknown. Blocks of a mebibyte and more go back to the system as they are freed.
void meet_process_limits();

// Gives unused parts of the heap back to the system: between what planning keeps lies as much that it has
// freed.
void give_back_free_memory();

}  // namespace prun
