#include "base/hub_name.hpp"

#include <iterator>

#include "base/text.hpp"

namespace prun {

namespace fs = std::filesystem;

// A path with one folder that is here is rather one of the user's, misspelt.
std::string fetch_advice(const fs::path& missing) {
  const fs::path owner = missing.parent_path(), name = missing.filename();
  std::error_code ignored;
  if (missing.is_absolute() || name.empty() || std::distance(missing.begin(), missing.end()) != 2 ||
      owner.native().starts_with('.') || owner == "~" || fs::exists(owner, ignored))
    return {};
  const std::string shown = printable(missing.string(), 200);
  return "; prun loads nothing from a hub: fetch it first, as by `hf download " + shown +
         " --local-dir FOLDER`";
}

}  // namespace prun
