// Sends what UCX has to say to the run's folder: the program that starts ranks names a file there by
// PRUN_UCX_LOG. Where it has not, it goes to standard error in the form of prun's messages: UCX itself would
// print it between a command's output. Who sets UCX_LOG_FILE or UCX_LOG_LEVEL gets it as UCX prints it.
#include <fcntl.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace prun::ucx {
namespace {

// Makes one write for a line, at the end of a file that all ranks share, or to standard error. UCX calls this
// only for levels that are enabled.
ucs_log_func_rc_t write_down(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list arguments) {
  static const char* const name = std::getenv("PRUN_UCX_LOG");
  static const int file =
      name ? ::open(name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
  const int to = file < 0 ? STDERR_FILENO : file;
  const char* const rank = std::getenv("PRUN_RANK");
  char line[1024];
  int size = file < 0 ? std::snprintf(line, sizeof line, "prun: UCX says: %s: ", ucs_log_level_names[level])
                      : std::snprintf(line, sizeof line, "rank %s: %s: ", rank ? rank : "?",
                                      ucs_log_level_names[level]);
  size += std::vsnprintf(line + size, sizeof line - static_cast<std::size_t>(size) - 1, format, arguments);
  if (size > static_cast<int>(sizeof line) - 2) size = sizeof line - 2;
  // It may quote variables of the environment, which hold anything.
  std::replace_if(
      line, line + size, [](char byte) { return (byte >= 0 && byte < ' ') || byte == 0x7f; }, '?');
  line[size++] = '\n';
  const ssize_t written = ::write(to, line, static_cast<std::size_t>(size));
  return written == size ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

__attribute__((constructor)) void take_chatter() {
  if (!std::getenv("UCX_LOG_FILE") && (std::getenv("PRUN_UCX_LOG") || !std::getenv("UCX_LOG_LEVEL")))
    ucs_log_push_handler(&write_down);
}

}  // namespace
}  // namespace prun::ucx
