// The prediction for a recipe's plan, or why there is none.
#pragma once

#include <filesystem>
#include <optional>

#include "run/assembly.hpp"
#include "sim/predict.hpp"

namespace prun {

struct Forecast {
  std::optional<Prediction> prediction;
  std::string missing;  // where there is none: one sentence, with the command that helps
};

// `costs`: the cost table that was named; nothing: the machine's own, which may be missing or damaged.
Forecast forecast(const Assembly& assembly, const std::optional<std::filesystem::path>& costs);

}  // namespace prun
