// Memory of the CPU device: mapped, zeroed, resident; and how much of it there is.
#pragma once

#include <cstdint>
#include <filesystem>

namespace prun::cpu {

// Zeroed, resident and aligned to a page at least; backed by huge pages where the system grants them.
// Throws unsupported when the system refuses. `bytes` may be 0.
void* map_memory(std::int64_t bytes);
// `bytes` is what map_memory was given.
void unmap_memory(void* memory, std::int64_t bytes);

// What the machine has, or what this process's control group allows, whichever is less. `root` is where
// proc and sys are found.
std::int64_t memory_limit(const std::filesystem::path& root = "/");

}  // namespace prun::cpu
