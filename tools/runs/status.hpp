// Reports the state of a run, from what is in its folder alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runs/log.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {

struct RunStatus {
  // It is "running", "at HOST" (which cannot be asked from here), "done", "stopped", "failed", or "died": its
  // processes are gone and it has not said why.
  std::string state;
  std::optional<RunHolder> holder;
};

RunStatus status_of(const std::filesystem::path& folder, const RunLog& log);

// Returns seconds since 1970, as logs have them.
double now_seconds();

}  // namespace prun
