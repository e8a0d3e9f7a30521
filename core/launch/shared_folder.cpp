// A forked child in a session of its own reads from a pipe whose other end this process holds. It reads until
// that is closed, which the system does for a process that is killed, and removes the folder. A rank may
// outlive its launcher, by seconds on a machine that has other things to do, and still put something in: so
// it tries again. It makes system calls only: no other program has to be there, and the process it was forked
// from may have threads whose locks nobody in the child would ever release.
#include "launch/shared_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "base/limits.hpp"
#include "base/signals_blocked.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr int attempts = 600;  // a minute
constexpr timespec pause_between{0, 100'000'000};

// The files in a folder that holds nothing else.
void remove_files(int folder) {
  alignas(dirent64) char entries[4096];
  for (ssize_t bytes; (bytes = ::getdents64(folder, entries, sizeof entries)) > 0;)
    for (ssize_t at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      ::unlinkat(folder, entry->d_name, 0);
      at += entry->d_reclen;
    }
}

bool remove_folder(const char* path) {
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (folder < 0) return errno == ENOENT;
  remove_files(folder);
  ::close(folder);
  return ::rmdir(path) == 0 || errno == ENOENT;
}

// Nothing of the process it comes from stays open but `alive`, as descriptor 0.
void let_go_of_everything_but(int alive) {
  ::dup2(alive, STDIN_FILENO);
  const int null = ::open("/dev/null", O_WRONLY);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  if (::close_range(STDERR_FILENO + 1, ~0u, 0) != 0)
    for (int fd = STDERR_FILENO + 1; fd < 65536; ++fd) ::close(fd);
}

[[noreturn]] void remove_when_alone(int alive, const char* path) {
  ::prctl(PR_SET_NAME, "prun-remover");
  ::setsid();
  let_go_of_everything_but(alive);
  if (::chdir("/") != 0) ::_exit(1);
  char byte;
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) count = ::read(STDIN_FILENO, &byte, 1);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (remove_folder(path)) ::_exit(0);
    ::nanosleep(&pause_between, nullptr);
  }
  ::_exit(1);
}

}  // namespace

SharedFolder::SharedFolder() {
  std::string path = detail::concat("/dev/shm/prun-", ::getpid(), "-XXXXXX");
  if (!::mkdtemp(path.data())) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    const FileDescriptor read_end(ends[0]);
    alive_ = FileDescriptor(ends[1]);
    const SignalsBlocked blocked;
    remover_ = ::fork();
    if (remover_ == 0) remove_when_alone(read_end.get(), path.c_str());
  }
  if (remover_ < 0) {
    const int error = errno;
    ::rmdir(path.c_str());
    throw_error(ErrorCode::unsupported, "cannot start the process that removes ", path, ": ",
                refusal_text(error));
  }
  path_ = path;
}

SharedFolder::~SharedFolder() {
  if (path_.empty()) return;
  alive_ = FileDescriptor();
  while (::waitpid(remover_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace prun
