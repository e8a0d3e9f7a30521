// Converts numbers to narrower types, where they are known to fit.
#pragma once

#include <concepts>
#include <utility>

#include "prun/error.hpp"

namespace prun {

// Returns the same number in another type. A number that does not fit is a bug of prun.
template <std::integral To, std::integral From>
constexpr To narrow(From number) {
  PRUN_CHECK(std::in_range<To>(number), number, " does not fit where it is to be kept");
  return static_cast<To>(number);
}

}  // namespace prun
