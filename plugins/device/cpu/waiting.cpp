// The futex calls, straight to the kernel: one process, so the private kind.
#include "waiting.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>

namespace prun::cpu {
namespace {

void futex(const FutexWord& word, int operation, std::uint32_t value) noexcept {
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void futex_sleep(const FutexWord& word, std::uint32_t expected) noexcept {
  futex(word, FUTEX_WAIT_PRIVATE, expected);
}

void futex_wake_one(const FutexWord& word) noexcept { futex(word, FUTEX_WAKE_PRIVATE, 1); }

void futex_wake_all(const FutexWord& word) noexcept {
  futex(word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max());
}

}  // namespace prun::cpu
