// Formats as printf does, into a text.
#pragma once

#include <cstdio>
#include <string>

namespace prun {

// Formats at most 255 letters.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace prun
