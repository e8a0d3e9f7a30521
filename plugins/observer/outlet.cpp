// Implements the outlet by a string, a lock and a thread.
#include "outlet.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include "prun/error.hpp"

namespace prun::observer {

namespace {

constexpr std::size_t most_kept = 64 << 10;
constexpr std::chrono::seconds patience(3);

// Returns 0 or the error. It waits for a descriptor that is set not to block.
int write_fully(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Prints to standard error, but nothing where that blocks as well.
void say(std::string_view text) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT)) write_fully(STDERR_FILENO, text);
}

}  // namespace

struct Outlet::Shared {
  ~Shared() { ::close(descriptor); }

  int descriptor = -1;  // its own: a thread left behind must not write into a file that has the number next
  std::string name;
  std::mutex mutex;
  std::condition_variable changed;
  std::string kept;
  bool writing = false;
  bool closed = false;  // says that the other side has closed it
  bool over = false;

  bool idle() const { return kept.empty() && !writing; }
};

bool Outlet::may_stand_still(int descriptor) {
  struct stat facts {};
  return ::isatty(descriptor) == 1 ||
         (::fstat(descriptor, &facts) == 0 && (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode)));
}

Outlet::Outlet(int descriptor, std::string name) : shared_(std::make_shared<Shared>()) {
  shared_->descriptor = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  shared_->name = std::move(name);
  if (may_stand_still(descriptor)) try {
      thread_ = std::thread([shared = shared_] { write_all(*shared); });
    } catch (const std::system_error& error) {
      throw_error(ErrorCode::unsupported, "cannot start the thread that writes to ", shared_->name, ": ",
                  error.code().message(),
                  "; raise the limit on processes and threads (ulimit -u, or pids.max of the container)");
    }
}

Outlet::~Outlet() {
  if (!thread_.joinable()) return;
  settle();
  bool idle = false;
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->over = true;
    idle = shared_->idle();
    shared_->kept.clear();
  }
  shared_->changed.notify_all();
  if (idle) {
    thread_.join();
  } else {
    thread_.detach();
    say("prun: " + shared_->name + " was not read; the last lines are lost\n");
  }
}

void Outlet::write_all(Shared& shared) {
  ::prctl(PR_SET_NAME, "prun-outlet");
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return shared.over || !shared.kept.empty(); });
    if (shared.over) return;
    const std::string text = std::exchange(shared.kept, {});
    shared.writing = true;
    lock.unlock();
    const int error = write_fully(shared.descriptor, text);
    if (error != 0)
      say(detail::concat("prun: ", shared.name, " is gone (", std::strerror(error),
                         "); the run goes on without it\n"));
    lock.lock();
    shared.writing = false;
    shared.closed = error != 0;
    shared.changed.notify_all();
    if (!shared.closed) continue;
    shared.kept.clear();
    return;
  }
}

bool Outlet::put(std::string_view text) {
  if (!thread_.joinable()) {
    if (const int error = write_fully(shared_->descriptor, text))
      throw_error(ErrorCode::storage, shared_->name, ": cannot be written (", std::strerror(error),
                  "); free space there or send it elsewhere");
    return true;
  }
  const std::scoped_lock lock(shared_->mutex);
  if (shared_->closed) return true;
  if (shared_->kept.size() + text.size() > most_kept) return false;
  shared_->kept += text;
  shared_->changed.notify_all();
  return true;
}

bool Outlet::idle() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->idle();
}

void Outlet::settle() {
  std::unique_lock lock(shared_->mutex);
  if (gave_up_) return;
  gave_up_ = !shared_->changed.wait_for(lock, patience, [&] { return shared_->idle(); });
}

}  // namespace prun::observer
