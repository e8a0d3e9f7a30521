// Errors about ops that cannot be planned.
#pragma once

#include "program/step_program.hpp"

namespace prun {

template <class... Parts>
[[noreturn]] void refuse_op(const Program& program, const Op& op, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "segment '", program.segment(op.segment).name, "', op '", op.kind(),
              "': ", detail::concat(parts...));
}

}  // namespace prun
