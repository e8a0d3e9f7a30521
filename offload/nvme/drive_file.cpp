#include "nvme/drive_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "base/narrow.hpp"
#include "base/thread.hpp"
#include "prun/error.hpp"

namespace prun::nvme {
namespace {

constexpr std::int64_t fill_bytes = std::int64_t{1} << 20;
constexpr std::size_t fill_threads = 4;  // since a drive that waits for each piece works for half of the time

[[noreturn]] void fail(const std::filesystem::path& folder, const char* what, int error) {
  throw_error(ErrorCode::storage, "tier nvme: ", folder.string(), ": ", what, ": ", std::strerror(error),
              " (errno ", error, ")");
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Opens a file without a name or, where the file system has none, one that loses it at once.
int open_nameless(const std::filesystem::path& folder, int flags) {
  const int nameless = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return nameless;
  std::string name = (folder / ".prun_XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

std::int64_t room_in(const std::filesystem::path& folder) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0)
    throw_error(ErrorCode::bad_input, "cannot use folder ", folder.string(),
                " of tier nvme: ", std::strerror(errno),
                "; create it, or set another one in [tier.nvme] paths");
  return bytes_left(facts);
}

std::int64_t room_in_all(std::span<const std::filesystem::path> folders, std::int64_t ranks,
                         std::int64_t own) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& folder : folders) least = std::min(least, room_in(folder));
  return saturated_sum(own, saturated_product(static_cast<std::uint64_t>(least / ranks), folders.size()));
}

DriveFile::DriveFile(std::filesystem::path folder, std::int64_t bytes, bool direct)
    : folder_(std::move(folder)) {
  check_room(bytes);
  open(direct);
  try {
    fill(bytes);
  } catch (const Error&) {
    ::close(descriptor_);
    throw;
  }
}

DriveFile::~DriveFile() { ::close(descriptor_); }

void DriveFile::check_room(std::int64_t bytes) const {
  if (const std::int64_t room = room_in(folder_); bytes > room)
    throw_error(ErrorCode::unsupported, "tier nvme: ", folder_.string(), " has ", room,
                " bytes left, this rank needs ", bytes,
                " of them; free some, or name more folders in "
                "[tier.nvme] paths");
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(bytes) > limit.rlim_cur)
    throw_error(ErrorCode::unsupported, "tier nvme: ", folder_.string(), ": this rank needs a file of ",
                bytes, " bytes, ", limit.rlim_cur,
                " are allowed here; raise the limit on the size of files (ulimit -f)");
}

void DriveFile::open(bool direct) {
  if (direct) descriptor_ = open_nameless(folder_, O_DIRECT);
  direct_ = descriptor_ >= 0;
  if (!direct_ && (!direct || errno == EINVAL)) descriptor_ = open_nameless(folder_, 0);
  if (descriptor_ < 0) fail(folder_, "no file can be made there", errno);
}

void DriveFile::fill(std::int64_t bytes) {
  if (bytes > 0 && ::fallocate(descriptor_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP)
    fail(folder_, "there is no room for the file", errno);
  const std::unique_ptr<void, Free> zeros(
      std::aligned_alloc(static_cast<std::size_t>(block), static_cast<std::size_t>(fill_bytes)));
  if (!zeros) throw_error(ErrorCode::unsupported, out_of_memory);
  std::memset(zeros.get(), 0, static_cast<std::size_t>(fill_bytes));
  const auto begin = std::chrono::steady_clock::now();
  const auto pieces = static_cast<std::size_t>((bytes + fill_bytes - 1) / fill_bytes);
  share_out(fill_threads, pieces, [&](std::size_t, std::size_t piece) {
    std::int64_t at = static_cast<std::int64_t>(piece) * fill_bytes;
    const std::int64_t end = std::min(bytes, at + fill_bytes);
    while (at < end) {
      const ssize_t done = ::pwrite(descriptor_, zeros.get(), static_cast<std::size_t>(end - at), at);
      if (done < 0 && errno != EINTR) fail(folder_, "the file cannot be written", errno);
      at += std::max<std::int64_t>(0, done / block * block);
    }
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  first_rate_ = static_cast<double>(bytes) / std::max(1e-9, took.count());
}

}  // namespace prun::nvme
