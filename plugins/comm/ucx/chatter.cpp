// Sends what UCX has to say to the run's folder: the program that starts ranks names a file there by
// PRUN_UCX_LOG. Where it has not, or the user sends it somewhere by UCX_LOG_FILE, UCX prints as it always
// does.
#include <fcntl.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace prun::ucx {
namespace {

// Makes one write for a line, at the end of a file that all ranks share. UCX calls this only for levels that
// are enabled.
ucs_log_func_rc_t write_down(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list arguments) {
  static const int file =
      ::open(std::getenv("PRUN_UCX_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return UCS_LOG_FUNC_RC_CONTINUE;
  const char* const rank = std::getenv("PRUN_RANK");
  char line[1024];
  int size = std::snprintf(line, sizeof line, "rank %s: %s: ", rank ? rank : "?", ucs_log_level_names[level]);
  size += std::vsnprintf(line + size, sizeof line - static_cast<std::size_t>(size) - 1, format, arguments);
  if (size > static_cast<int>(sizeof line) - 2) size = sizeof line - 2;
  line[size++] = '\n';
  const ssize_t written = ::write(file, line, static_cast<std::size_t>(size));
  return written == size ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

__attribute__((constructor)) void take_chatter() {
  if (std::getenv("PRUN_UCX_LOG") && !std::getenv("UCX_LOG_FILE")) ucs_log_push_handler(&write_down);
}

}  // namespace
}  // namespace prun::ucx
