// Makes what `prun doctor` says of one thing, and text of all of it.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "plugin/finding.hpp"

namespace prun {

// Returns a good finding with the text of `body`, or a broken one with its Error, which says what to do.
Finding attempt(const std::string& what, const std::function<std::string()>& body);

bool nothing_broken(std::span<const Finding> findings);
std::string to_text(std::span<const Finding> findings);
std::string to_json(std::span<const Finding> findings);

}  // namespace prun
