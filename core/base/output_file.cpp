#include "base/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "base/durable_file.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

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
