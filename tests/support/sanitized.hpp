// Says whether a sanitizer is compiled in. It takes memory and addresses of its own, which count as the
// process's.
#pragma once

namespace prun::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace prun::test
