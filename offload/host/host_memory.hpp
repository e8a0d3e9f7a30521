// Provides host memory as devices hand it out: anonymous, zeroed, resident, in huge pages where there are
// any; and states how much of it there is. Memory that CUDA and io_uring must know is registered with both as
// it lies here: memory that CUDA allocates is a mapping of its driver's, which io_uring refuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace prun::host {

// Returns zeroed, resident memory aligned to a page at least, in huge pages that were set aside, or otherwise
// in those that the system makes. Several threads touch it if it is large, on the node that the calling
// thread prefers. Throws unsupported when the system refuses. `bytes` may be 0. `note` becomes a sentence if
// large memory is in small pages.
void* map_memory(std::int64_t bytes, std::string* note = nullptr);
// Unmaps memory; `bytes` is what map_memory was given.
void unmap_memory(void* memory, std::int64_t bytes);

// Returns the bytes of this process's memory in huge pages, or nothing if the system does not say. `root` is
// where proc and sys are found.
std::optional<std::int64_t> bytes_in_huge_pages(const std::filesystem::path& root = "/");
// These join notes in one line; say that something took long with so many bytes; and say that large memory,
// of which so much lies in huge pages, lies in small ones.
void add_note(std::string& note, const std::string& more);
std::string long_time_text(const char* what, std::int64_t bytes, double seconds);
std::string small_pages_text(std::int64_t bytes, std::int64_t huge);

// Returns what the machine has, or what this process's control group allows, whichever is less. `said` is
// what the machine has, if the system shows less than there is; 0: what it shows.
std::int64_t memory_limit(std::int64_t said = 0, const std::filesystem::path& root = "/");

}  // namespace prun::host
