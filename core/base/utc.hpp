// Writes points in time as people read them, the same on every host.
#pragma once

#include <ctime>
#include <string>

namespace prun {

// Returns a text such as "2026-11-22T18:28:23Z", or "?" for what is no time.
inline std::string utc_text(std::time_t seconds) {
  std::tm parts{};
  char text[40];
  if (!::gmtime_r(&seconds, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "?";
  return text;
}

}  // namespace prun
