// Names plugins that are not in every build.
#pragma once

#include <algorithm>

#include "support/assembly_fixture.hpp"

namespace prun::test {

inline bool is_built(const std::string& kind, const std::string& name) {
  const std::vector<std::string> names = plugins().catalog().names(kind);
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace prun::test
