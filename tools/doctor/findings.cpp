#include "doctor/findings.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr std::size_t health_width = 8, what_width = 16;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

// Puts further lines below the first.
std::string indented(std::string text) {
  const std::string blanks(health_width + what_width, ' ');
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, blanks);
  return text;
}

}  // namespace

Finding attempt(const std::string& what, const std::function<std::string()>& body) {
  try {
    return {Health::good, what, body(), ""};
  } catch (const Error& error) {
    return {Health::broken, what, error.what(), ""};
  }
}

bool nothing_broken(std::span<const Finding> findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.health == Health::broken; });
}

std::string to_text(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += padded(name_of(finding.health), health_width) + padded(finding.what, what_width) +
            indented(finding.found) + "\n";
    if (!finding.mend.empty())
      text += std::string(health_width + what_width, ' ') + "mend: " + finding.mend + "\n";
  }
  return text;
}

std::string to_json(std::span<const Finding> findings) {
  JsonWriter json;
  json.begin_object().name("findings").begin_array();
  for (const Finding& finding : findings)
    json.begin_object()
        .member("health", name_of(finding.health))
        .member("what", finding.what)
        .member("found", finding.found)
        .member("mend", finding.mend)
        .end_object();
  json.end_array().member("broken", !nothing_broken(findings)).end_object();
  return json.take();
}

}  // namespace prun
