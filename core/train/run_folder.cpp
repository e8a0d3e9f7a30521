#include "train/run_folder.hpp"

namespace prun {

std::filesystem::path run_folder(const Recipe& recipe) {
  const std::string& out = recipe.text("run.out");
  return out.empty() ? std::filesystem::path("runs") / recipe.text("run.name") : std::filesystem::path(out);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, "cannot create the run folder ", folder.string(), ": ", error.message());
}

}  // namespace prun
