// Errors of the plan's proof.
#pragma once

#include "prun/error.hpp"

namespace prun {

template <class... Parts>
[[noreturn]] void fail_check(const Parts&... parts) {
  throw_error(ErrorCode::internal, "plan check: ", detail::concat(parts...));
}

}  // namespace prun
