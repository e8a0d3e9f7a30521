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

// ------------------------------------------------------------------- whole file

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

namespace {

// ------------------------------------------------------------------- output file

namespace fs = std::filesystem;

std::string without_blanks(std::string_view text) {
  std::string rest(text);
  std::erase_if(rest, [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
  return rest;
}

// Says whether a file begins with the mark, in any layout, or is empty; throws with a message if it cannot be
// read.
bool may_be_replaced(const fs::path& file, std::string_view mark) {
  constexpr std::size_t most_blanks = 256;
  const FileDescriptor open = open_or_throw(file, O_RDONLY | O_NONBLOCK);
  std::string text(mark.size() + most_blanks, '\0');
  const ssize_t count = ::pread(open.get(), text.data(), text.size(), 0);
  if (count < 0) return false;
  text.resize(static_cast<std::size_t>(count));
  return text.empty() || without_blanks(text).starts_with(without_blanks(mark));
}

[[noreturn]] void refuse(const fs::path& target, const char* is, const OutputKind& kind) {
  throw_error(ErrorCode::bad_input, target.string(), " is there already and is ", is, kind.what,
              "; name another file with --out, or move it away");
}

}  // namespace

void check_output(const fs::path& target, const OutputKind& kind) {
  std::error_code ignored;  // a path that cannot be inspected cannot be written either
  const fs::file_status status = fs::status(target, ignored);
  if (fs::is_directory(status)) refuse(target, "a folder, not ", kind);
  if (!fs::is_regular_file(status) || is_standard_stream(target)) return;
  if (!may_be_replaced(target, kind.mark)) refuse(target, "not ", kind);
}

void write_output(const fs::path& target, std::string_view text, const OutputKind& kind) {
  PRUN_CHECK(text.starts_with(kind.mark), kind.what, " begins otherwise");
  check_output(target, kind);
  replace_text_file(fs::absolute(target), text);
}

}  // namespace prun
