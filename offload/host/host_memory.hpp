// Memory of the host as devices hand it out: anonymous, zeroed, resident, in huge pages where they can be
// had; and how much of it there is. What CUDA and io_uring are to know is registered with both as it lies
// here: memory that CUDA allocates is a mapping of its driver's, which io_uring refuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace prun::host {

// Returns zeroed, resident memory aligned to a page at least, in huge pages that were set aside, or else in
// those that the system makes. Several threads touch it where it is large, on the node that the calling
// thread prefers. Throws unsupported when the system refuses. `bytes` may be 0. `note` becomes a sentence
// where large memory is in small pages.
void* map_memory(std::int64_t bytes, std::string* note = nullptr);
// `bytes` is what map_memory was given.
void unmap_memory(void* memory, std::int64_t bytes);

// What of this process's memory lies in huge pages; nothing where the system does not say. `root` is where
// proc and sys are found.
std::optional<std::int64_t> bytes_in_huge_pages(const std::filesystem::path& root = "/");
// What is said of memory, or nothing: where something took long that is done with so many bytes; where large
// memory, of which so much lies in huge pages, lies in small ones; and both in one line.
void add_note(std::string& note, const std::string& more);
std::string long_time_text(const char* what, std::int64_t bytes, double seconds);
std::string small_pages_text(std::int64_t bytes, std::int64_t huge);

// What the machine has, or what this process's control group allows, whichever is less. `said`: what the
// machine has, where the system shows less than there is; 0: what it shows.
std::int64_t memory_limit(std::int64_t said = 0, const std::filesystem::path& root = "/");

}  // namespace prun::host
