// Separates "the cost table lacks a figure" from other errors: such a recipe can run, it just has no
// prediction.
#pragma once

#include "prun/error.hpp"

namespace prun {

class NoFigure : public Error {
 public:
  template <class... Parts>
  explicit NoFigure(const Parts&... parts) : Error(ErrorCode::not_found, detail::concat(parts...)) {}
};

}  // namespace prun
