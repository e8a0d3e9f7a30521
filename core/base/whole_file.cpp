#include "base/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Throws an error that says what is wrong with a file.
class Refusal {
 public:
  Refusal(const fs::path& file, std::string_view failed)
      : failed_(failed.empty() ? "cannot read " + in_quotes(file.string()) : std::string(failed)) {}

  template <class... Parts>
  [[noreturn]] void operator()(ErrorCode code, const Parts&... parts) const {
    throw_error(code, failed_, ": ", parts...);
  }

 private:
  std::string failed_;
};

// Opens a file. Between stat and open the path may come to name something else: a pipe then does not block
// us.
FileDescriptor opened(const fs::path& file, const Refusal& refuse) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
    refuse(ErrorCode::bad_input, "it is ", kind_of(facts.st_mode), ", not a file");
  FileDescriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int error = errno;
  if (!descriptor.is_open() && (error == ENOENT || error == ENOTDIR))
    refuse(ErrorCode::not_found, "there is no such file");
  if (!descriptor.is_open())
    refuse(ErrorCode::bad_input, std::strerror(error), "; make it readable or name another file");
  if (::fstat(descriptor.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
    refuse(ErrorCode::bad_input, "it is not a file");
  return descriptor;
}

}  // namespace

std::string whole_file(const fs::path& file, std::size_t most, std::string_view failed) {
  constexpr std::size_t piece = std::size_t{64} << 10;
  const Refusal refuse(file, failed);
  const FileDescriptor descriptor = opened(file, refuse);
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    if (before > most) refuse(ErrorCode::bad_input, "it is larger than ", most, " bytes");
    text.resize(before + std::min(piece, most + 1 - before));
    const ssize_t count = ::read(descriptor.get(), text.data() + before, text.size() - before);
    const int error = errno;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return text;
    if (count < 0 && error != EINTR)
      refuse(ErrorCode::bad_input, std::strerror(error), "; name another file");
  }
}

}  // namespace prun
