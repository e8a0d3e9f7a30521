#include "doctor/machine_findings.hpp"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/durable_file.hpp"
#include "base/machine.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"
#include "train/assemble/host_limits.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr rlim_t little_locked = rlim_t{64} << 20;
constexpr std::int64_t few_files = 4096, few_threads = 1024, little_shared = std::int64_t{256} << 20;

std::string size(std::int64_t bytes) { return size_text(bytes); }

std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

Finding processor() {
  const Machine machine = this_machine();
  Finding finding{Health::good, "processor", to_text(machine), ""};
  if (machine.isa == "generic") {
    finding.health = Health::slow;
    finding.mend = "kernels for this processor use no vectors; take one with AVX2 or AVX-512";
  }
  return finding;
}

// Reads a line such as "MemAvailable:  1234 kB".
std::int64_t memory_of(const fs::path& root, const std::string& key) {
  std::ifstream file(root / "proc/meminfo");
  std::string word;
  std::int64_t kib = 0;
  while (file >> word)
    if (word == key + ":" && file >> kib) return kib << 10;
  return 0;
}

Finding memory(const fs::path& root) {
  return {Health::good, "memory",
          size(memory_of(root, "MemAvailable")) + " of " + size(memory_of(root, "MemTotal")) + " to be had",
          ""};
}

Finding numa(const fs::path& root) {
  int nodes = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/devices/system/node", ignored))
    nodes += fs::exists(entry.path() / "cpulist", ignored) ? 1 : 0;
  return {Health::good, "memory nodes",
          nodes > 1 ? detail::concat(nodes, ", each nearer to some processors") : "one", ""};
}

// Reads the word in brackets of "always [madvise] never".
Finding huge_pages(const fs::path& root) {
  const std::string line = first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos)
    return {Health::slow, "huge pages", "the system has none",
            "take a kernel with transparent huge pages; without them large memory costs more to reach"};
  const std::string chosen = line.substr(begin + 1, end - begin - 1);
  if (chosen != "never") return {Health::good, "huge pages", chosen, ""};
  return {Health::slow, "huge pages", chosen,
          "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max == RLIM_INFINITY)
    return {Health::good, "locked memory", "unlimited", ""};
  Finding finding{Health::good, "locked memory",
                  size(static_cast<std::int64_t>(limit.rlim_max)) + " may be locked", ""};
  if (limit.rlim_max < little_locked) {
    finding.health = Health::slow;
    finding.mend =
        "ulimit -l unlimited (memlock in /etc/security/limits.conf; a container: --ulimit memlock=-1): RDMA "
        "and "
        "io_uring register memory";
  }
  return finding;
}

// Reports one of the shares that the system leaves, of which few bytes mean slow: a recipe's needs are
// compared elsewhere.
Finding share(const char* what, std::int64_t has, std::int64_t little, const std::string& found,
              const char* mend) {
  const bool enough = has >= little;
  return {enough ? Health::good : Health::slow, what, found, enough ? "" : mend};
}

std::string count(std::int64_t number) {
  return number == std::numeric_limits<std::int64_t>::max() ? "unlimited" : std::to_string(number);
}

Findings shares(const fs::path& root) {
  const HostShare room = room_on_host(root);
  return {share("open files", room.descriptors, few_files, count(room.descriptors),
                "ulimit -Hn 65536 (nofile in /etc/security/limits.conf)"),
          share("threads", room.threads, few_threads, count(room.threads),
                "ulimit -u unlimited, or a larger pids limit of the container (--pids-limit -1)"),
          share("shared memory", room.shared_bytes, little_shared, size(room.shared_bytes) + " in /dev/shm",
                "sudo mount -o remount,size=8G /dev/shm (a container: --shm-size 8g)")};
}

// A ring is really made: containers may refuse it where the kernel has it.
Finding io_uring() {
  io_uring_params params{};
  const FileDescriptor ring(static_cast<int>(::syscall(SYS_io_uring_setup, 4, &params)));
  if (ring.is_open()) return {Health::good, "io_uring", "allowed", ""};
  return {Health::slow, "io_uring",
          std::string("not allowed: ") + std::strerror(errno) + "; drives are used by threads",
          errno == ENOSYS
              ? "take Linux 5.10 or newer"
              : "sudo sysctl kernel.io_uring_disabled=0 (a container: --security-opt seccomp=unconfined)"};
}

bool is_in_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  for (const std::string_view folder : split(path ? path : "", ':'))
    if (::access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  return false;
}

Finding launchers() {
  std::string found;
  for (const char* program : {"srun", "mpirun", "torchrun"})
    if (is_in_path(program)) found += (found.empty() ? "" : ", ") + std::string(program);
  return {Health::good, "launchers",
          found.empty() ? "prun's own, for one host; no srun, mpirun or torchrun" : found, ""};
}

}  // namespace

Findings machine_findings(const fs::path& root) {
  Findings all = {processor(), memory(root), numa(root), huge_pages(root), locked_memory()};
  for (Finding& finding : shares(root)) all.push_back(std::move(finding));
  all.push_back(io_uring());
  all.push_back(launchers());
  return all;
}

}  // namespace prun
