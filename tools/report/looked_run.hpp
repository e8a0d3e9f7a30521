// Reads a run as its page needs it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/log.hpp"
#include "runs/status.hpp"

namespace prun {

inline constexpr std::size_t longest_name = 60;

struct Looked {
  std::filesystem::path folder;
  std::string name;
  RunLog log;
  RunStatus status;
};

// Throws bad_input where the folder holds no log of a run.
Looked look_at(const std::filesystem::path& run);

// Returns a name for each run: several of one name are distinguished by their folders.
std::vector<std::string> names_of(const std::vector<Looked>& runs);

}  // namespace prun
