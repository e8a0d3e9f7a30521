// Lists the runs in a folder, a line each, for `prun runs`. Only the end of each log is read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runs/log.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {

// ------------------------------------------------------------------- run list

struct RunRow {
  std::filesystem::path folder;
  std::string name, state;
  std::int64_t step = 0, steps = 0;
  double loss = 0, tokens_per_second = 0;  // those of the last step; 0 tokens: not known
  double said_at = 0;                      // the last line's time; 0: it has said nothing yet
};

// Returns the runs in the folder, or the folder's own; the one that logged last comes first.
std::vector<RunRow> list_runs(const std::filesystem::path& folder);

std::string runs_text(const std::vector<RunRow>& rows, double now);
std::string runs_json(const std::vector<RunRow>& rows);

// ------------------------------------------------------------------- status
// Reports the state of a run, from what is in its folder alone.

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
