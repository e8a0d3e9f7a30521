// Text files of a run's folder, as whoever looks at it finds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace prun {

inline constexpr std::int64_t most_text = std::int64_t{1} << 20;

// Returns what is in it, or its last `most` bytes; empty where there is no such file.
std::string text_in(const std::filesystem::path& file, std::int64_t most = most_text);

}  // namespace prun
