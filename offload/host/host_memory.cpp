// Maps memory first and populates it after, since huge pages must be requested before the first touch.
#include "host/host_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/thread.hpp"
#include "prun/error.hpp"

namespace prun::host {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
// From this size on it matters which pages memory lies in.
constexpr std::size_t large = std::size_t{1} << 30;

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

// Returns the size of the addresses: large memory has those of whole huge pages, which it takes if they were
// set aside.
std::size_t mapped_size(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  return round_up(size, size < large ? page_size() : huge_page);
}

[[noreturn]] void refuse(std::size_t size, int error) {
  throw_error(ErrorCode::unsupported, "host memory: the system does not grant ", size, " bytes of memory (",
              std::strerror(error), "); use a smaller model or batch, or a machine with more memory");
}

// Owns a mapping until it is handed out.
class Mapping {
 public:
  explicit Mapping(std::size_t size, int flags = 0) : size_(size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) refuse(size, errno);
    start_ = static_cast<char*>(memory);
  }
  ~Mapping() {
    if (start_) munmap(start_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* start() const { return start_; }
  char* hand_out() { return std::exchange(start_, nullptr); }
  // Keeps `size` bytes that begin at a multiple of `alignment`, and gives the rest back.
  void trim(std::size_t alignment, std::size_t size) {
    const std::size_t before = round_up(address(), alignment) - address();
    const std::size_t after = size_ - before - size;
    if (after && munmap(start_ + before + size, after) != 0) refuse(size, errno);
    size_ -= after;
    if (before && munmap(start_, before) != 0) refuse(size, errno);
    start_ += before;
    size_ -= before;
  }

 private:
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(start_); }
  char* start_ = nullptr;
  std::size_t size_;
};

void populate(char* start, std::size_t size) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(start, size, MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) refuse(size, errno);
#endif
  // A kernel before 5.14 lacks the call, so each page is touched.
  for (std::size_t at = 0; at < size; at += page_size()) *static_cast<volatile char*>(start + at) = 0;
}

// Populates memory with several threads if it is large: zeroing takes one thread a second for a few GiB. They
// inherit from this one on which node memory is to lie.
void populate_together(char* start, std::size_t size) {
  constexpr std::size_t share = std::size_t{128} << 20;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t parts = std::clamp<std::size_t>(size / share, 1, cores);
  const auto at = [&](std::size_t part) {
    return part == parts ? size : size / parts * part / huge_page * huge_page;
  };
  share_out(parts, parts,
            [&](std::size_t, std::size_t part) { populate(start + at(part), at(part + 1) - at(part)); });
}

// Maps huge pages that were set aside, if enough of them are free; no other memory can use them. Null: they
// are not free, or this process's control group may not have them, which shows when they are touched.
void* map_set_aside(std::size_t size) {
  constexpr int two_mib = 21 << MAP_HUGE_SHIFT;
  try {
    Mapping mapping(size, MAP_HUGETLB | two_mib);
    populate_together(mapping.start(), size);
    return mapping.hand_out();
  } catch (const Error&) {
    return nullptr;
  }
}

// Maps anonymous memory, of which no more becomes resident than was requested: what ends within a huge page
// ends in small ones.
void* map_anonymous(std::size_t size, std::int64_t bytes) {
  const bool has_huge = size >= huge_page;
  Mapping mapping(has_huge ? size + huge_page : size);
  const std::size_t used = std::min(size, round_up(static_cast<std::size_t>(bytes), page_size()));
  if (has_huge) {
    mapping.trim(huge_page, size);
    const std::size_t whole = used / huge_page * huge_page;
    madvise(mapping.start(), whole, MADV_HUGEPAGE);  // a hint: without it the pages are small
    if (whole < size) madvise(mapping.start() + whole, size - whole, MADV_NOHUGEPAGE);
  }
  populate_together(mapping.start(), used);
  return mapping.hand_out();
}

// Returns the limit in a file: "max" and a missing or unreadable file are no limit.
std::int64_t limit_in(const std::filesystem::path& file) {
  std::int64_t limit = 0;
  return std::ifstream(file) >> limit ? limit : std::numeric_limits<std::int64_t>::max();
}

// Returns a group's limit: it is bound by its own limit and by those of all groups above it. Inside a
// container the group's own path may be out of sight; the top of what is mounted is then the container's
// group.
std::int64_t limit_of_group(const std::filesystem::path& mount, std::string_view group, const char* file) {
  std::filesystem::path path = std::filesystem::path(group).relative_path();
  std::int64_t limit = limit_in(mount / file);
  for (; !path.empty(); path = path.parent_path()) limit = std::min(limit, limit_in(mount / path / file));
  return limit;
}

// Says whether "cpu,memory" names the memory controller.
bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "memory") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// Returns the limit of this process: lines are "0::/path" in the unified hierarchy and "4:cpu,memory:/path"
// in the older one.
std::int64_t control_group_limit(const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view text = line, controllers = text.substr(first + 1, second - first - 1);
    const std::string_view group = text.substr(second + 1);
    if (controllers.empty()) limit = std::min(limit, limit_of_group(mount, group, "memory.max"));
    if (names_memory(controllers))
      limit = std::min(limit, limit_of_group(mount / "memory", group, "memory.limit_in_bytes"));
  }
  return limit;
}

std::int64_t machine_memory(const std::filesystem::path& root) {
  const std::filesystem::path file = root / "proc/meminfo";
  std::ifstream lines(file);
  std::string key;
  std::int64_t kibibytes = 0;
  if (!(lines >> key >> kibibytes) || key != "MemTotal:")
    throw_error(
        ErrorCode::unsupported, file.string(),
        ": does not begin with MemTotal, so the memory of this machine is not known; mount proc there");
  return kibibytes * 1024;
}

}  // namespace

void* map_memory(std::int64_t bytes, std::string* note) {
  PRUN_CHECK(bytes >= 0, bytes, " bytes");
  const std::size_t size = mapped_size(bytes);
  if (note) note->clear();
  if (size < large) return map_anonymous(size, bytes);
  const auto begin = std::chrono::steady_clock::now();
  void* memory = map_set_aside(size);
  if (!memory) {
    const std::optional<std::int64_t> before = note ? bytes_in_huge_pages() : std::nullopt;
    memory = map_anonymous(size, bytes);
    if (before) *note = small_pages_text(bytes, bytes_in_huge_pages().value_or(*before) - *before);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (note) add_note(*note, long_time_text("getting", bytes, took.count()));
  return memory;
}

void unmap_memory(void* memory, std::int64_t bytes) {
  PRUN_CHECK(munmap(memory, mapped_size(bytes)) == 0, "memory of ", bytes, " bytes: ", std::strerror(errno));
}

std::optional<std::int64_t> bytes_in_huge_pages(const std::filesystem::path& root) {
  std::ifstream lines(root / "proc/self/smaps_rollup");
  std::optional<std::int64_t> bytes;
  for (std::string line; std::getline(lines, line);)
    for (const std::string_view key : {"AnonHugePages:", "Private_Hugetlb:"})
      if (line.starts_with(key)) bytes = bytes.value_or(0) + std::stoll(line.substr(key.size())) * 1024;
  return bytes;
}

void add_note(std::string& note, const std::string& more) {
  if (!note.empty() && !more.empty()) note += "; ";
  note += more;
}

std::string long_time_text(const char* what, std::int64_t bytes, double seconds) {
  constexpr double worth_saying = 2;
  if (seconds < worth_saying) return "";
  char text[96];
  std::snprintf(text, sizeof text, "%s %.1f GiB of host memory took %.1f s", what,
                static_cast<double>(bytes) / static_cast<double>(large), seconds);
  return text;
}

std::string small_pages_text(std::int64_t bytes, std::int64_t huge) {
  if (bytes < static_cast<std::int64_t>(large) || huge >= bytes / 10 * 9) return "";
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  return detail::concat(
      (bytes - huge) / gib, " of ", bytes / gib,
      " GiB of host memory lie in small pages, which take longer to get, to pin and to reach: the system has "
      "no more huge ones; see that /sys/kernel/mm/transparent_hugepage/enabled is 'madvise' or 'always', or "
      "set some aside (sysctl vm.nr_hugepages)");
}

std::int64_t memory_limit(std::int64_t said, const std::filesystem::path& root) {
  return std::min(said > 0 ? said : machine_memory(root), control_group_limit(root));
}

}  // namespace prun::host
