// SPDX-License-Identifier: Apache-2.0
// The threads a CPU kernel may use. The device owns them; a kernel borrows them for one call.
#pragma once

#include <cstdint>
#include <type_traits>

namespace prun {

// The layout is frozen: it is part of the plugin ABI.
struct Workers {
  void* pool;
  std::int32_t count;  // threads, the caller included; at least 1
  // Runs body(context, index) for every index in [0, tasks) and returns when all are done. Indices are
  // assigned statically (index i runs on thread i % count), so that what each thread does never depends on
  // timing. It neither allocates nor locks and is not reentrant. `body` must not throw.
  void (*run)(void* pool, std::int64_t tasks, void (*body)(void* context, std::int64_t index), void* context);
};

// An example: parallel(workers, n, [&](std::int64_t i) { ... })
template <class Body>
void parallel(const Workers& workers, std::int64_t tasks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  workers.run(
      workers.pool, tasks, [](void* context, std::int64_t index) { (*static_cast<Plain*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Splits [0, n) into one contiguous range per thread, each a multiple of `grain` but the last.
template <class Body>
void parallel_ranges(const Workers& workers, std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0) return;
  const std::int64_t blocks = (n + grain - 1) / grain;
  const std::int64_t tasks = blocks < workers.count ? blocks : workers.count;
  parallel(workers, tasks, [&](std::int64_t t) {
    const std::int64_t begin = blocks * t / tasks * grain;
    const std::int64_t end = t + 1 == tasks ? n : blocks * (t + 1) / tasks * grain;
    if (begin < end) body(begin, end);
  });
}

}  // namespace prun
