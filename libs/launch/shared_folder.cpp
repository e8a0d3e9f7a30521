// A forked child in a session of its own reads from a pipe whose other end this process holds. It reads until
// that is closed, which the system does for a process that is killed, and removes the folder. A rank may
// outlive its launcher, by seconds on a machine that has other things to do, and still put something in: so
// it tries again. It makes system calls only: no other program has to be there, and the process it was forked
// from may have threads whose locks nobody in the child would ever release. Should it be killed itself, a
// thread starts another. Where all were killed the next start finds a folder that nobody holds a lock on.
#include "launch/shared_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/thread.hpp"
#include "launch/socket.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr int attempts = 600;  // a minute
constexpr timespec pause_between{0, 100'000'000};
constexpr std::string_view name_begin = "prun-";

// Removes the files in a folder that holds nothing else.
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

// Closes everything of the parent process except `alive`, as descriptor 0, and the folder that the child
// holds the lock on.
void let_go_of_everything_but(int alive, int folder) {
  constexpr int kept = STDERR_FILENO + 1;
  const int held = ::fcntl(folder, F_DUPFD, kept);
  ::dup2(alive, STDIN_FILENO);
  const int null = ::open("/dev/null", O_WRONLY);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  if (held > kept) ::dup2(held, kept);
  if (::close_range(kept + 1, ~0u, 0) != 0)
    for (int fd = kept + 1; fd < 65536; ++fd) ::close(fd);
}

[[noreturn]] void remove_when_alone(int alive, int folder, const char* path) {
  ::prctl(PR_SET_NAME, "prun-remover");
  ::setsid();
  let_go_of_everything_but(alive, folder);
  if (::chdir("/") != 0) ::_exit(1);
  char byte;
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) count = ::read(STDIN_FILENO, &byte, 1);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (remove_folder(path)) ::_exit(0);
    ::nanosleep(&pause_between, nullptr);
  }
  ::_exit(1);
}

FileDescriptor open_folder(const char* path) {
  return FileDescriptor(::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool lock(const FileDescriptor& folder) { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; }

// Says whether the path still leads to the folder: another start may have taken it for a dead one before it
// was locked.
bool is_at(const char* path, const FileDescriptor& folder) {
  struct stat there {
  }, here{};
  return ::lstat(path, &there) == 0 && ::fstat(folder.get(), &here) == 0 && there.st_ino == here.st_ino &&
         there.st_dev == here.st_dev;
}

struct HeldFolder {
  std::string path;  // empty if nothing can be written there
  FileDescriptor folder;
};

HeldFolder make_held_folder(const std::string& parent) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::string path = detail::concat(parent, "/", name_begin, ::getpid(), "-XXXXXX");
    if (!::mkdtemp(path.data())) return {};
    FileDescriptor folder = open_folder(path.c_str());
    if (folder.is_open() && lock(folder) && is_at(path.c_str(), folder)) return {path, std::move(folder)};
    const int error = errno;
    ::rmdir(path.c_str());
    if (!folder.is_open() && error != ENOENT)
      throw_error(ErrorCode::unsupported, "cannot open ", path, ": ", refusal_text(error));
  }
  throw_error(ErrorCode::unsupported, "cannot keep a folder in ", parent,
              ": another process removes or locks what is made there; leave folders that begin with ",
              name_begin, " to prun");
}

bool is_ours(const FileDescriptor& folder) {
  struct stat facts {};
  return ::fstat(folder.get(), &facts) == 0 && facts.st_uid == ::geteuid();
}

bool is_name_of_one(const std::string& name) {
  return name.starts_with(name_begin) && name.size() > name_begin.size() &&
         std::isdigit(static_cast<unsigned char>(name[name_begin.size()]));
}

}  // namespace

// Removes dead folders. A process that lives holds the lock, or has not locked yet and finds out that its
// folder is gone.
void remove_dead_shared_folders(const std::string& parent) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(parent, none)) {
    if (!is_name_of_one(entry.path().filename())) continue;
    const FileDescriptor folder = open_folder(entry.path().c_str());
    if (!folder.is_open() || !is_ours(folder) || !lock(folder)) continue;
    remove_files(folder.get());
    ::rmdir(entry.path().c_str());
  }
}

SharedFolder::SharedFolder(const std::string& parent) {
  remove_dead_shared_folders(parent);
  HeldFolder held = make_held_folder(parent);
  if (held.path.empty()) return;
  path_ = held.path;
  folder_ = std::move(held.folder);
  try {
    start_remover();
    stop_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
    const SignalsBlocked blocked;
    keeper_ = start_thread("the folder in shared memory", [this] { keep_a_remover(); });
  } catch (const Error&) {
    end();
    throw;
  }
}

SharedFolder::~SharedFolder() { end(); }

// A remover that was killed in the last moment has left the folder to this process.
void SharedFolder::end() {
  if (path_.empty()) return;
  if (keeper_.joinable()) {
    ::eventfd_write(stop_.get(), 1);
    keeper_.join();
  }
  alive_ = FileDescriptor();
  while (remover_ > 0 && ::waitpid(remover_, nullptr, 0) < 0 && errno == EINTR) continue;
  remove_folder(path_.c_str());
}

void SharedFolder::start_remover() {
  int ends[2];
  remover_ = -1;
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    const FileDescriptor read_end(ends[0]);
    alive_ = FileDescriptor(ends[1]);
    const SignalsBlocked blocked;
    remover_ = ::fork();
    if (remover_ == 0) remove_when_alone(read_end.get(), folder_.get(), path_.c_str());
  }
  if (remover_ < 0)
    throw_error(ErrorCode::unsupported, "cannot start the process that removes ", path_, ": ",
                refusal_text(errno));
}

// Keeps a remover running. If the system cannot start a process, this tries again whenever there is nothing
// else to do.
void SharedFolder::keep_a_remover() {
  ::prctl(PR_SET_NAME, "prun-keeper");
  constexpr int between_attempts_ms = 1000;
  for (;;) {
    const FileDescriptor ended(remover_ > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, remover_, 0)) : -1);
    pollfd entries[2] = {{stop_.get(), POLLIN, 0}, {ended.get(), POLLIN, 0}};
    ::poll(entries, 2, ended.is_open() ? -1 : between_attempts_ms);
    if (entries[0].revents) return;
    if (remover_ > 0 && ::waitpid(remover_, nullptr, WNOHANG) != remover_) continue;
    try {
      start_remover();
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace prun
