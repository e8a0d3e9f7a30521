// Starts weights as T5 does.
#pragma once

#include <cmath>

#include "prun/model.hpp"

namespace prun {

// Is normal, with 1/width as its variance.
inline Init scaled(double width) { return normal(1 / std::sqrt(width)); }
inline Init scaled(const Dim& width) { return scaled(static_cast<double>(width.extent)); }

}  // namespace prun
