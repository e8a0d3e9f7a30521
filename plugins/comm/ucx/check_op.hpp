// Refuses operations that are no operation, lack memory, or name a member that cannot be meant.
#pragma once

#include <string>

#include "prun/comm.hpp"

namespace prun::ucx {

// Member `rank` of a group of `size` members is to take part in the operation.
void check_op(const CommOp& op, const std::string& group, std::int32_t rank, std::int32_t size);

}  // namespace prun::ucx
