// Stands before the system's calls of the whole process.
#include "recorder.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>

namespace prun::test {

struct FileRecorder::Watch {
  std::string root;
  std::mutex mutex;
  std::vector<FileCall> calls;
  std::map<ino_t, std::int64_t> nodes;  // a number that is free is given out again
  std::int64_t made = 0;
};

namespace {

namespace fs = std::filesystem;
using Kind = FileCall::Kind;

using Watch = FileRecorder::Watch;
std::atomic<Watch*> watch = nullptr;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof path);
  return {path, static_cast<std::size_t>(size < 0 ? 0 : size)};
}

std::string full_path(int folder, const char* path) {
  if (path[0] == '/') return path;
  return (folder == AT_FDCWD ? fs::current_path().string() : path_of(folder)) + "/" + path;
}

bool is_below(const Watch& watched, const std::string& path) { return path.starts_with(watched.root + "/"); }
bool is_watched(const Watch& watched, const std::string& path) {
  return path == watched.root || is_below(watched, path);
}

std::int64_t node_of(Watch& watched, ino_t inode) {
  const auto found = watched.nodes.find(inode);
  return found != watched.nodes.end() ? found->second : watched.nodes[inode] = ++watched.made;
}

std::int64_t node_at(Watch& watched, const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? node_of(watched, facts.st_ino) : 0;
}

std::int64_t new_node(Watch& watched, const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0) watched.nodes.erase(facts.st_ino);
  return node_at(watched, path);
}

void add(Watch& watched, Kind kind, std::int64_t node, const std::string& path, const std::string& to = {}) {
  FileCall call;
  call.kind = kind;
  call.node = node;
  call.folder = node_at(watched, fs::path(path).parent_path());
  call.path = fs::path(path).lexically_relative(watched.root);
  if (!to.empty()) call.to = fs::path(to).lexically_relative(watched.root);
  watched.calls.push_back(std::move(call));
}

void add_write(int fd, std::int64_t offset, const void* bytes, ssize_t count) {
  Watch* const watched = watch;
  struct stat facts {};
  if (!watched || count <= 0 || !is_below(*watched, path_of(fd)) || ::fstat(fd, &facts) != 0) return;
  const std::scoped_lock lock(watched->mutex);
  FileCall call;
  call.kind = Kind::write;
  call.node = node_of(*watched, facts.st_ino);
  call.offset = offset;
  call.bytes.assign(static_cast<const char*>(bytes), static_cast<std::size_t>(count));
  watched->calls.push_back(std::move(call));
}

void add_rename(Kind kind, const std::string& from, const std::string& to) {
  Watch* const watched = watch;
  if (!watched || !is_below(*watched, from)) return;
  const std::scoped_lock lock(watched->mutex);
  add(*watched, kind, 0, from, to);
}

void add_removal(const std::string& path) {
  Watch* const watched = watch;
  if (!watched || !is_below(*watched, path)) return;
  const std::scoped_lock lock(watched->mutex);
  add(*watched, Kind::remove, 0, path);
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
  const auto opens = real<int(int, const char*, int, ...)>("openat");
  Watch* const watched = watch;
  const std::string path = watched ? full_path(folder, name) : std::string();
  if (!watched || !is_below(*watched, path) || (flags & O_CREAT) == 0)
    return opens(folder, name, flags, mode);
  const std::scoped_lock lock(watched->mutex);
  const bool was_there = ::access(path.c_str(), F_OK) == 0;
  const int fd = opens(folder, name, flags, mode);
  if (fd >= 0 && !was_there) add(*watched, Kind::create, new_node(*watched, path), path);
  return fd;
}

}  // namespace

FileRecorder::FileRecorder(const fs::path& root) : watch_(std::make_unique<Watch>()) {
  watch_->root = fs::canonical(root);
  watch = watch_.get();
}

FileRecorder::~FileRecorder() { watch = nullptr; }

std::vector<FileCall> FileRecorder::calls() const {
  const std::scoped_lock lock(watch_->mutex);
  return watch_->calls;
}

}  // namespace prun::test

using prun::test::FileCall;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return prun::test::open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return prun::test::open_at(folder, path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  const off_t offset = ::lseek(fd, 0, SEEK_CUR);
  const ssize_t written = prun::test::real<ssize_t(int, const void*, size_t)>("write")(fd, bytes, count);
  prun::test::add_write(fd, offset, bytes, written);
  return written;
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  const ssize_t written =
      prun::test::real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, count, offset);
  prun::test::add_write(fd, offset, bytes, written);
  return written;
}

int fsync(int fd) {
  prun::test::FileRecorder::Watch* const watched = prun::test::watch;
  struct stat facts {};
  if (watched && prun::test::is_watched(*watched, prun::test::path_of(fd)) && ::fstat(fd, &facts) == 0) {
    const std::scoped_lock lock(watched->mutex);
    FileCall call;
    call.kind = FileCall::Kind::sync;
    call.node = prun::test::node_of(*watched, facts.st_ino);
    watched->calls.push_back(std::move(call));
    return 0;  // nothing crashes here
  }
  return prun::test::real<int(int)>("fsync")(fd);
}

int mkdir(const char* path, mode_t mode) {
  const int result = prun::test::real<int(const char*, mode_t)>("mkdir")(path, mode);
  prun::test::FileRecorder::Watch* const watched = prun::test::watch;
  const std::string full = prun::test::full_path(AT_FDCWD, path);
  if (result == 0 && watched && prun::test::is_below(*watched, full)) {
    const std::scoped_lock lock(watched->mutex);
    prun::test::add(*watched, FileCall::Kind::make_folder, prun::test::new_node(*watched, full), full);
  }
  return result;
}

int rename(const char* from, const char* to) {
  const int result = prun::test::real<int(const char*, const char*)>("rename")(from, to);
  if (result == 0)
    prun::test::add_rename(FileCall::Kind::rename, prun::test::full_path(AT_FDCWD, from),
                           prun::test::full_path(AT_FDCWD, to));
  return result;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const int result = prun::test::real<int(int, const char*, int, const char*, unsigned)>("renameat2")(
      from_folder, from, to_folder, to, flags);
  if (result == 0)
    prun::test::add_rename(FileCall::Kind::exchange, prun::test::full_path(from_folder, from),
                           prun::test::full_path(to_folder, to));
  return result;
}

int unlinkat(int folder, const char* path, int flags) {
  const std::string full = prun::test::full_path(folder, path);
  const int result = prun::test::real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
  if (result == 0) prun::test::add_removal(full);
  return result;
}

int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) {
  struct stat facts {};
  const bool folder = ::lstat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
  return unlinkat(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}
}
