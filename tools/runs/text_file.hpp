// Reads text files of a run's folder, which may change meanwhile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace prun {

inline constexpr std::int64_t most_text = std::int64_t{1} << 20;

// Returns a file's text, or its last `most` bytes; it is empty where there is no such file.
std::string text_in(const std::filesystem::path& file, std::int64_t most = most_text);

}  // namespace prun
