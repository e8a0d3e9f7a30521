#include "report/looked_run.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun {

Looked look_at(const std::filesystem::path& run) {
  const std::filesystem::path file = log_of(run), folder = file.parent_path();
  Looked looked{folder, "", read_log(file), {}};
  if (looked.log.parts.empty())
    throw_error(ErrorCode::bad_input, file.string(),
                " holds no record of a run's start; it is no log of prun's");
  looked.status = status_of(folder, looked.log);
  looked.name = printable(looked.log.start()->name, longest_name);
  return looked;
}

std::vector<std::string> names_of(const std::vector<Looked>& runs) {
  std::vector<std::string> names;
  for (const Looked& run : runs) {
    const bool same = std::count_if(runs.begin(), runs.end(),
                                    [&](const Looked& other) { return other.name == run.name; }) > 1;
    names.push_back(same ? printable(run.folder.string(), longest_name) : run.name);
  }
  return names;
}

}  // namespace prun
