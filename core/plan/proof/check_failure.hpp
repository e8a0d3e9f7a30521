// Errors of the plan's proof, which are prun's own: no recipe causes them. Example: "plan check: function
// update has steps that no call runs".
#pragma once

#include "prun/error.hpp"

namespace prun {

template <class... Parts>
[[noreturn]] void fail_check(const Parts&... parts) {
  throw_error(ErrorCode::internal, "plan check: ", detail::concat(parts...));
}

}  // namespace prun
