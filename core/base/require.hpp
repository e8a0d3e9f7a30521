// What whoever calls us must keep to: a recipe, or a plugin on the other side of the border. Unlike
// PRUN_CHECK, it says nothing of our own code when it is broken.
#pragma once

#include "prun/error.hpp"

namespace prun {

template <class... Parts>
void require(bool kept, const Parts&... parts) {
  if (!kept) [[unlikely]]
    throw_error(ErrorCode::bad_input, parts...);
}

}  // namespace prun
