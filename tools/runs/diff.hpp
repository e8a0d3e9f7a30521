// Compares two runs, for `prun diff`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- diff

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

// ------------------------------------------------------------------- recipe lines
// Reads the recipe in the folder of a run, line by line as the run wrote it there: each value with its
// origin. No plugin is asked, so it can be read wherever the folder is.

struct RecipeLine {
  std::string section;   // such as "[model]", "[[strategy]]"; empty: none yet
  std::size_t item = 0;  // counts sections of that name before it
  std::string key, value, origin;
  std::size_t number = 0;  // of the line in the text, from 0

  // Returns the path as --set names it: "model.layers", "strategy.0.stage".
  std::string path() const;

  bool by_default() const { return origin == "default"; }
};

std::vector<RecipeLine> recipe_lines(std::string_view resolved_toml);
// Reads the lines of a run's folder, old names of keys replaced by the new ones; returns nothing where it has
// no recipe.
std::vector<RecipeLine> recipe_lines_of(const std::filesystem::path& run_folder);
// Returns the recipe of a run's folder with old names of keys replaced, to be read as a recipe. Throws
// not_found if there is none.
std::string recipe_text_of(const std::filesystem::path& run_folder);

}  // namespace prun
