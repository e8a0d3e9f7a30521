// Decides where the members of a bucket lie, side by side, and the views over them.
#pragma once

#include <cstdint>

#include "plan/memory/home_room.hpp"

namespace prun {

// Places a bucket; values that are not kept whole lie in memory that instances have in turn. `around` gets,
// for values that lie side by side, the bytes of all of them.
void place_bucket(const Program& program, const Bucket& bucket, std::int32_t first_instance, HomeRoom& room,
                  Homes& homes, Homes& around);

}  // namespace prun
