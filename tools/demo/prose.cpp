#include <algorithm>

#include "base/text.hpp"
#include "demo/demo_text.hpp"

namespace prun {
namespace {

bool is_prose(std::string_view line) {
  return line.empty() || std::string_view("|#!<").find(line.front()) == std::string_view::npos;
}

// Of a link only its words are left.
void append_plain(std::string& out, std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.substr(i, 2) == "](") {
      i = std::min(line.find(')', i), line.size());
      continue;
    }
    if (std::string_view("`*[]").find(line[i]) == std::string_view::npos) out += line[i];
  }
  out += '\n';
}

}  // namespace

std::string prose_of(std::string_view pages) {
  std::string out;
  bool code = false;
  for (const std::string_view line : split(pages, '\n')) {
    if (trim(line).starts_with("```"))
      code = !code;
    else if (!code && is_prose(line))
      append_plain(out, line);
  }
  return out;
}

}  // namespace prun
