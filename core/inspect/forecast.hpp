// The prediction for a recipe's plan, or why there is none.
#pragma once

#include <filesystem>
#include <optional>

#include "assemble/assembly.hpp"
#include "sim/predict.hpp"

namespace prun {

struct Forecast {
  std::optional<Prediction> prediction;
  std::string missing;  // where there is none: one sentence, with the command that helps
  std::vector<std::uint64_t>
      sent;  // payload bytes this rank sends in a step, by queue, as its comm plugins count
};

// `costs`: the cost table that was named; nothing: the machine's own, which may be missing or damaged.
Forecast forecast(const Assembly& assembly, PluginHost& plugins,
                  const std::optional<std::filesystem::path>& costs);

}  // namespace prun
