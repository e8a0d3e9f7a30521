// Checks what a caller must ensure: a recipe, or a plugin on the other side of the ABI. Unlike PRUN_CHECK,
// a failure is no bug of prun.
#pragma once

#include "prun/error.hpp"

namespace prun {

template <class... Parts>
void require(bool kept, const Parts&... parts) {
  if (!kept) [[unlikely]]
    throw_error(ErrorCode::bad_input, parts...);
}

}  // namespace prun
