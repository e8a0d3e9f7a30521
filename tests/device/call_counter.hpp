// Counts every allocation and every mutex lock of the process, so that a test can demand none.
#pragma once

#include <cstdint>

namespace prun::test {

struct Calls {
  std::int64_t allocations = 0;
  std::int64_t locks = 0;
};

// False under a sanitizer, whose runtime has to intercept the same functions.
bool calls_are_counted();

// Since the program began, over all threads.
Calls calls_so_far();

}  // namespace prun::test
