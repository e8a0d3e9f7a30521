// Fills the templates in and writes them as new files.
#include "conform/scaffold.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/durable_file.hpp"
#include "conform/scaffold_templates.hpp"
#include "plugin/note.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// Makes "MyNet2Model" of "my-net_2" and "model". A class cannot begin with a digit: "3d" gives
// "Plugin3dModel". The kind at the end keeps the class apart from everything else in the templates.
std::string class_name(std::string_view name, std::string_view kind) {
  std::string result = name.front() >= '0' && name.front() <= '9' ? "Plugin" : "";
  const std::string words = detail::concat(name, '-', kind);
  bool start = true;
  for (const char c : words) {
    const bool separator = c == '-' || c == '_';
    if (!separator) result += start ? upper(c) : c;
    start = separator;
  }
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string filled(std::string_view text, std::string_view kind, std::string_view name) {
  std::string result(text.substr(text.find_first_not_of('\n')));
  std::string op(name);
  replace_all(op, "-", "_");
  replace_all(result, "@KIND@", kind == "tier" ? "device" : kind);
  replace_all(result, "@NAME@", name);
  replace_all(result, "@CLASS@", class_name(name, kind));
  replace_all(result, "@OP@", op);
  replace_all(result, "@SDK@", sdk_version.substr(0, sdk_version.rfind('.')));
  replace_all(result, "@EPOCH@", std::to_string(plugin_epoch));
  return result;
}

std::string_view checked_source(std::string_view kind, std::string_view name) {
  const std::string_view source = scaffold_source(kind);
  if (source.empty())
    throw_error(ErrorCode::bad_input, "there is no plugin kind '", kind,
                "' to start from; choose model, strategy, optimizer, data, observer, op, schedule, device, "
                "tier (a device that keeps bytes) or comm");
  if (!is_plugin_word(name))
    throw_error(ErrorCode::bad_input, "'", name,
                "' cannot be a plugin's name: it must have 1 to 64 of a-z, 0-9, '-' and '_' and begin with a "
                "letter or digit");
  return source;
}

void require_absent(const fs::path& path) {
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::not_found)
    throw_error(ErrorCode::bad_input, "'", path.string(),
                "' exists already and is left as it is; choose another folder");
}

void write_new(const fs::path& path, std::string_view text) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open()) throw_storage_error("create", path, errno);
  write_fully(file.get(), std::as_bytes(std::span(text)), path);
}

}  // namespace

std::vector<fs::path> write_scaffold(std::string_view kind, std::string_view name, const fs::path& folder) {
  const std::string_view source = checked_source(kind, name);
  const std::pair<fs::path, std::string_view> files[] = {{folder / "CMakeLists.txt", scaffold_cmake()},
                                                         {folder / (std::string(name) + ".cpp"), source},
                                                         {folder / "README.md", scaffold_readme()}};
  for (const auto& [path, text] : files) require_absent(path);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_storage_error("create", folder, error.value());
  std::vector<fs::path> written;
  for (const auto& [path, text] : files) {
    write_new(path, filled(text, kind, name));
    written.push_back(path);
  }
  return written;
}

}  // namespace prun
