#include "base/near_path.hpp"

#include <vector>

#include "base/text.hpp"

namespace prun {

namespace fs = std::filesystem;

std::string did_you_mean_beside(const fs::path& missing) {
  constexpr std::size_t most_names = 10000;
  const fs::path parent = missing.parent_path(), run = fs::path("runs") / missing;
  std::error_code error;
  if (parent.empty() && !missing.empty() && fs::is_directory(run, error))
    return "; did you mean " + in_quotes(printable(run.string(), 4096)) + "?";
  std::vector<std::string> names;
  for (fs::directory_iterator entry(parent.empty() ? "." : parent, error), end;
       !error && entry != end && names.size() < most_names; entry.increment(error))
    names.push_back(entry->path().filename().string());
  const std::string name = nearest(missing.filename().string(), names);
  return name.empty() ? "" : "; did you mean " + in_quotes(printable((parent / name).string(), 4096)) + "?";
}

}  // namespace prun
