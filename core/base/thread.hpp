// Starts threads, which may fail by a limit of the system that the user can raise, and shares work out to
// several.
#pragma once

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- thread

// Starts a thread; `what` says what it is for: "queue 'dp'".
template <class Thread = std::thread, class Body>
Thread start_thread(std::string_view what, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::unsupported, "cannot start the thread of ", what, ": ", error.code().message(),
                "; raise the limit on processes and threads (ulimit -u, or pids.max of the container)");
  }
}

// Calls body(thread, i) for every i below `count` by several threads, of which the caller is the first: by
// fewer if the system has no more to give. After an error nothing new is begun; the error of the smallest i
// is thrown once all have ended, so it is the same in every run.
template <class Body>
void share_out(std::size_t threads, std::size_t count, Body&& body) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr trouble;
  std::size_t failed = count;
  const auto work = [&](std::size_t thread) {
    for (std::size_t i; (i = next++) < count;) {
      try {
        body(thread, i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (i < failed) failed = i, trouble = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    try {
      for (std::size_t t = 1; t < std::min(threads, count); ++t)
        workers.emplace_back([&work, t] { work(t); });
    } catch (const std::system_error&) {
      // The threads that there are do what is left.
    }
    work(0);
  }
  if (trouble) std::rethrow_exception(trouble);
}

// ------------------------------------------------------------------- signals blocked
// Blocks all signals in threads and processes that are made while this lives, from their first instruction
// on: signals are for those that were there before.

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace prun
