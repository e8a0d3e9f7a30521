// Reads whole files that a user names: recipes, configurations, tokenizers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace prun {

// Returns the bytes of a regular file of at most `most` bytes. A folder, a device or a pipe, which might
// never end, is not opened. Throws not_found or bad_input: `failed`, or "cannot read 'FILE'", and the reason
// behind it.
std::string whole_file(const std::filesystem::path& file, std::size_t most, std::string_view failed = {});

}  // namespace prun
