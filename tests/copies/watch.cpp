#include "watch.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

namespace prun::test {

Watch::Watch(std::string who, std::chrono::seconds limit, std::function<std::string()> state)
    : who_(std::move(who)), limit_(limit), state_(std::move(state)), thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Watch::begins(const char* what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  since_ = std::chrono::steady_clock::now();
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (ended_.wait_until(lock, since_ + limit_) == std::cv_status::no_timeout) continue;
    if (ends_ || std::chrono::steady_clock::now() < since_ + limit_) continue;
    std::fprintf(stderr, "%s: %s and is not done after %d s: %s\n", who_.c_str(), what_,
                 static_cast<int>(limit_.count()), state_().c_str());
    std::fflush(stderr);
    ::kill(::getpid(), SIGTERM);
    return;
  }
}

}  // namespace prun::test
