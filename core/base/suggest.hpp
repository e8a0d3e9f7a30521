// "did you mean": the nearest of a set of names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace prun {

// The closest name, or empty when none is close enough to be a slip of the hand.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

// "; did you mean 'x'?", or empty.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

}  // namespace prun
