// Distinguishes that a cost table lacks a figure from other refusals: what is asked for can run all the same.
#pragma once

#include "prun/error.hpp"

namespace prun {

class NoFigure : public Error {
 public:
  template <class... Parts>
  explicit NoFigure(const Parts&... parts) : Error(ErrorCode::not_found, detail::concat(parts...)) {}
};

}  // namespace prun
