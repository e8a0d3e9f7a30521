// Compares two runs, for `prun diff`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace prun {

struct RunDifference {
  // Names something that the runs do not have alike; a text is empty where a run has nothing of that name.
  struct Unlike {
    std::string name, first, second;
  };
  struct Losses {
    std::int64_t step = 0;
    double first = 0, second = 0;
  };
  // Where losses have other bits, these are the first such step, the one in which they are farthest apart,
  // and the last step that both have.
  struct Parting {
    Losses first, most, last;
  };
  // Compares the seconds that a step takes.
  struct Quantile {
    double share = 0, first = 0, second = 0;
  };

  std::vector<Unlike> recipe, versions, plan;
  std::int64_t common_steps = 0;
  std::optional<Parting> parting;
  std::vector<Quantile> step_seconds;
  bool differ = false;  // in recipe, versions, plan or losses; where and how fast they ran does not count
};
RunDifference compare_runs(const std::filesystem::path& a, const std::filesystem::path& b);

std::string to_text(const RunDifference& difference);
std::string to_json(const RunDifference& difference);

}  // namespace prun
