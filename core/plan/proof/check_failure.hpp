// Reports what the proof of a plan finds wrong with it.
#pragma once

#include "prun/error.hpp"

namespace prun {

template <class... Parts>
[[noreturn]] void fail_check(const Parts&... parts) {
  throw_error(ErrorCode::internal, "plan check: ", detail::concat(parts...));
}

}  // namespace prun
