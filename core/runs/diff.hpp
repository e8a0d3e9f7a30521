// Two runs beside each other: what `prun diff` says.
#pragma once

#include <filesystem>
#include <string>

namespace prun {

struct RunDifference {
  std::string text;
  bool differ = false;  // in recipe, versions, plan or losses; where and how fast they ran does not count
};
RunDifference compare_runs(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace prun
