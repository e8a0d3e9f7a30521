// A shell in a session of its own reads from a pipe whose other end this process holds. It reads until that
// is closed, which the system does for a process that is killed, and removes the folder. A rank may outlive
// its launcher by an instant and still put something in: so it tries again.
#include "launch/shared_folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "prun/error.hpp"

namespace prun {
namespace {

constexpr const char* remove_when_alone =
    "cd /; cat; for i in 1 2 3 4 5 6 7 8 9; do rm -rf \"$1\" && exit 0; sleep 0.1; done";

class SpawnSettings {
 public:
  explicit SpawnSettings(int standard_input) {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, standard_input, STDIN_FILENO);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes,
                               POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

}  // namespace

SharedFolder::SharedFolder() {
  std::string path = "/dev/shm/prun-XXXXXX";
  if (!::mkdtemp(path.data())) return;
  int ends[2], error = 0;
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    const FileDescriptor read_end(ends[0]);
    alive_ = FileDescriptor(ends[1]);
    const SpawnSettings settings(read_end.get());
    std::string words[] = {"sh", "-c", remove_when_alone, "prun-remover", path};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                         words[3].data(), words[4].data(), nullptr};
    error = ::posix_spawn(&remover_, "/bin/sh", &settings.files, &settings.attributes, arguments, environ);
  } else {
    error = errno;
  }
  if (error != 0) {
    ::rmdir(path.c_str());
    throw_error(ErrorCode::internal, "cannot start the process that removes ", path, ": ",
                std::strerror(error));
  }
  path_ = path;
}

SharedFolder::~SharedFolder() {
  if (path_.empty()) return;
  alive_ = FileDescriptor();
  while (::waitpid(remover_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace prun
