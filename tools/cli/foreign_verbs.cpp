#include "cli/foreign_verbs.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view foreign_prefix = "prun-";

bool may_be_foreign(std::string_view verb) {
  const bool plain = std::all_of(verb.begin(), verb.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  return plain && !verb.empty() && verb.front() != '-' && commands_named(verb, {}).empty();
}

bool can_be_executed(const fs::path& file) {
  std::error_code none;
  return fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0;
}

// An empty entry stands for the current folder; executables there are called by their path, not by chance.
std::vector<fs::path> folders_of_path() {
  const char* const path = std::getenv("PATH");
  std::vector<fs::path> folders;
  for (const std::string_view folder : split(path ? path : "", ':'))
    if (!folder.empty()) folders.emplace_back(folder);
  return folders;
}

}  // namespace

std::optional<fs::path> foreign_verb(std::string_view verb) {
  if (!may_be_foreign(verb)) return {};
  for (const fs::path& folder : folders_of_path()) {
    const fs::path file = folder / (std::string(foreign_prefix) + std::string(verb));
    if (can_be_executed(file)) return file;
  }
  return {};
}

std::vector<std::string> foreign_verbs() {
  std::set<std::string> verbs;
  std::error_code none;
  for (const fs::path& folder : folders_of_path())
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with(foreign_prefix)) continue;
      const std::string verb = name.substr(foreign_prefix.size());
      if (may_be_foreign(verb) && can_be_executed(entry.path())) verbs.insert(verb);
    }
  return {verbs.begin(), verbs.end()};
}

void become_foreign_verb(int argc, char** argv) {
  std::error_code none;
  if (argc < 2 || fs::exists(argv[1], none)) return;
  const std::optional<fs::path> file = foreign_verb(argv[1]);
  if (!file) return;
  const fs::path self = fs::read_symlink("/proc/self/exe", none);
  if (!self.empty()) ::setenv("PRUN", self.c_str(), 1);
  std::vector<char*> arguments(argv + 1, argv + argc);
  std::string name = *file;
  arguments.front() = name.data();
  arguments.push_back(nullptr);
  ::execv(name.c_str(), arguments.data());
  throw_error(ErrorCode::bad_input, name, " cannot be started: ", std::strerror(errno));
}

}  // namespace prun
