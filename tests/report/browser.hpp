// A real browser, where this machine has one: what a page says there once its script has run.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "cli/binary.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {

inline std::optional<std::string> browser() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (::access(path, X_OK) == 0) return path;
  return {};
}

// The document as the browser has it in the end.
inline std::string rendered(const std::string& file) {
  const TempFolder profile;
  return run_program({*browser(), "--headless=new", "--no-sandbox", "--disable-gpu",
                      "--disable-dev-shm-usage", "--user-data-dir=" + profile.path(), "--dump-dom",
                      "file://" + file})
      .out;
}

}  // namespace prun::test

#define PRUN_NEEDS_BROWSER() \
  if (!::prun::test::browser()) GTEST_SKIP() << "no Chromium here (Debian: chromium)"
