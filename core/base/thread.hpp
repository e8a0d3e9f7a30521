// Threads whose start may fail: a limit of the system, which the user can raise.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "prun/error.hpp"

namespace prun {

// `what` it is for: "queue 'dp'".
template <class Thread = std::thread, class Body>
Thread start_thread(std::string_view what, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::unsupported, "cannot start the thread of ", what, ": ", error.code().message(),
                "; raise the limit on processes and threads (ulimit -u, or pids.max of the container)");
  }
}

}  // namespace prun
