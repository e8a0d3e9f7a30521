#include "cli/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "prun/error.hpp"

namespace prun {
namespace {

// A pipe whose reader has gone says so.
bool reader_is_gone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void prepare_output() {
  std::signal(SIGPIPE, SIG_IGN);
  // Where one is missing, the lowest number free is its own. Read only, so that writing there fails.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) < 0) return;
}

void finish_output() {
  errno = 0;
  const bool arrived = std::fflush(stdout) == 0 && !std::ferror(stdout);
  const int error = errno;
  if (arrived || error == EPIPE || reader_is_gone()) return;
  throw_error(ErrorCode::storage, "standard output cannot be written (",
              error ? std::strerror(error) : "part of it is lost, as on a full disk",
              "); free space there or send it elsewhere");
}

std::size_t columns(std::size_t otherwise) {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const said = std::getenv("COLUMNS");
  std::size_t number = 0;
  if (said) std::from_chars(said, said + std::strlen(said), number);
  return number > 0 ? number : otherwise;
}

}  // namespace prun
