#include "cli/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "prun/error.hpp"
#include "prun/visible.hpp"

namespace prun {
namespace {

// Returns the bytes at the end of `text` that begin a letter whose other bytes are still to come.
std::size_t unfinished_letter(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
    const auto byte = static_cast<unsigned char>(text[text.size() - length]);
    if ((byte & 0xC0u) != 0x80u) return letters::sequence_length(byte) > length ? length : 0;
  }
  return 0;
}

// Stands below a stream of the C library: it takes what the stream has collected. It lasts as long as the
// process, since exit() still writes the rest.
class VisibleStream {
 public:
  constexpr explicit VisibleStream(int descriptor) : descriptor_(descriptor) {}

  std::FILE* open() {
    std::FILE* const stream = ::fopencookie(this, "w", {nullptr, &VisibleStream::write, nullptr, nullptr});
    if (stream && descriptor_ == STDERR_FILENO)
      std::setvbuf(stream, nullptr, _IONBF, 0);
    else if (stream && ::isatty(descriptor_) == 1)
      std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
    return stream;
  }

  // Lets all text pass that is written from now on. The stream must be flushed before.
  void let_pass(bool all) { all_passes_ = all; }

  // A letter that stayed incomplete is dropped. Returns false where output cannot be written.
  bool finish() { return send(visible_lines({begun_.data(), std::exchange(begun_bytes_, 0)})); }

 private:
  // Has the form that the library wants: it returns 0 where nothing could be written.
  static ssize_t write(void* self, const char* bytes, std::size_t count) {
    return static_cast<VisibleStream*>(self)->take({bytes, count}) ? static_cast<ssize_t>(count) : 0;
  }

  bool take(std::string_view bytes) {
    std::string text(begun_.data(), std::exchange(begun_bytes_, 0));
    text += bytes;
    if (all_passes_) return send(text);
    begun_bytes_ = unfinished_letter(text);
    const std::size_t whole = text.size() - begun_bytes_;
    std::copy(text.begin() + static_cast<std::ptrdiff_t>(whole), text.end(), begun_.begin());
    return send(visible_lines(std::string_view(text).substr(0, whole)));
  }

  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }

  int descriptor_;
  bool all_passes_ = false;
  std::array<char, 4> begun_{};  // a letter, whose other bytes are still to come
  std::size_t begun_bytes_ = 0;
};
static_assert(std::is_trivially_destructible_v<VisibleStream>);

VisibleStream& output() {
  static VisibleStream stream(STDOUT_FILENO);
  return stream;
}

VisibleStream& errors() {
  static VisibleStream stream(STDERR_FILENO);
  return stream;
}

// Says whether the pipe's reader has gone.
bool reader_is_gone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void prepare_output() {
  std::signal(SIGPIPE, SIG_IGN);
  // Where one is missing, it is the lowest free number. It is opened read-only, so that writing there fails.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) < 0) return;
  if (std::FILE* const stream = output().open()) stdout = stream;
  if (std::FILE* const stream = errors().open()) stderr = stream;
}

void print_as_it_is(std::string_view text, std::FILE* to) {
  VisibleStream& below = to == stderr ? errors() : output();
  ::flockfile(to);
  std::fflush(to);
  below.let_pass(true);
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
  below.let_pass(false);
  ::funlockfile(to);
}

void print_generated(std::string_view text) {
  if (::isatty(STDOUT_FILENO) != 1) return print_as_it_is(text, stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void finish_output() {
  errno = 0;
  const bool arrived = std::fflush(stdout) == 0 && output().finish() && !std::ferror(stdout);
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

bool speaks_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    const std::string_view locale = value;
    return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos;
  }
  return false;
}

}  // namespace prun
