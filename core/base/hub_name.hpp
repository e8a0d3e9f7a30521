// Knows names of a hub of models, as people write them where prun takes a folder.
#pragma once

#include <filesystem>
#include <string>

namespace prun {

// Returns what to do where a path that is not there looks like OWNER/NAME of a hub; it is empty for others.
std::string fetch_advice(const std::filesystem::path& missing);

}  // namespace prun
