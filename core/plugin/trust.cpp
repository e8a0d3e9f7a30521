// Checks owner and permissions of a plugin file and of every folder above it.
#include "plugin/trust.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot(std::string_view action, const fs::path& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  throw_error(missing ? ErrorCode::not_found : ErrorCode::storage, "cannot ", action, " '", path.string(),
              "': ", std::strerror(error));
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::canonical(path, error);
  if (error) cannot("open", path, error.value());
  return result;
}

void judge(const struct stat& info, const fs::path& path, const fs::path& plugin,
           std::vector<std::string>& warnings) {
  const std::string reason = distrust(info, ::geteuid(), ::getegid());
  if (!reason.empty()) {
    const std::string what = path == plugin ? "" : "its folder '" + path.string() + "' ";
    throw_error(ErrorCode::bad_input, "'", plugin.string(), "' cannot be trusted: ", what,
                what.empty() ? "it " : "", reason);
  }
  const bool sticky_folder = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
  if ((info.st_mode & S_IWGRP) && !sticky_folder)
    warnings.push_back("'" + path.string() + "' can be written by its group; chmod g-w it");
}

void add_folders_above(fs::path path, std::set<fs::path>& folders) {
  while (path != path.root_path()) {
    path = path.parent_path();
    folders.insert(path);
  }
}

// Returns the folders above the file itself, and above the place of a symbolic link to it.
std::set<fs::path> folders_above(const fs::path& given, const fs::path& file) {
  std::set<fs::path> folders;
  add_folders_above(file, folders);
  const fs::path holder = real_path(fs::absolute(given).parent_path());
  folders.insert(holder);
  add_folders_above(holder, folders);
  return folders;
}

}  // namespace

std::string distrust(const struct stat& info, uid_t user, gid_t group) {
  const bool sticky_folder = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
  if ((info.st_mode & S_IWOTH) && !sticky_folder) return "can be written by anybody; chmod o-w it";
  if (info.st_uid != 0 && info.st_uid != user)
    return detail::concat("belongs to user ", info.st_uid, ", neither to root nor to you (", user, ")");
  if ((info.st_mode & S_IWGRP) && !sticky_folder && info.st_gid != 0 && info.st_gid != group)
    return detail::concat("can be written by group ", info.st_gid, ", neither root's nor yours (", group,
                          "); chmod g-w it");
  return "";
}

TrustedFile open_trusted(const fs::path& path) {
  TrustedFile file;
  file.path = real_path(path);
  // Without O_NONBLOCK, opening a pipe of that name would wait for a writer.
  file.descriptor =
      FileDescriptor(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file.descriptor.is_open()) cannot("open", path, errno);
  struct stat info {};
  if (::fstat(file.descriptor.get(), &info) != 0) cannot("examine", path, errno);
  if (!S_ISREG(info.st_mode))
    throw_error(ErrorCode::bad_input, "'", path.string(), "' is not a regular file");
  judge(info, file.path, file.path, file.warnings);
  file.device = info.st_dev;
  file.inode = info.st_ino;
  for (const fs::path& folder : folders_above(path, file.path)) {
    if (::lstat(folder.c_str(), &info) != 0) cannot("examine", folder, errno);
    judge(info, folder, file.path, file.warnings);
  }
  return file;
}

void check_same_file(const TrustedFile& file, const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) cannot("examine", path, errno);
  if (info.st_dev != file.device || info.st_ino != file.inode)
    throw_error(ErrorCode::bad_input, "'", path.string(), "' is not the file '", file.path.string(),
                "' that was checked: it was replaced while being loaded");
}

}  // namespace prun
