#include "doctor/findings.hpp"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>

#include "base/durable_file.hpp"
#include "base/json.hpp"
#include "base/machine.hpp"
#include "base/text.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"
#include "prun/error.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- findings

constexpr std::size_t health_width = 8, what_width = 16;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

// Puts further lines below the first.
std::string indented(std::string text) {
  const std::string blanks(health_width + what_width, ' ');
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, blanks);
  return text;
}

}  // namespace

Finding attempt(const std::string& what, const std::function<std::string()>& body) {
  try {
    return {Health::good, what, body(), ""};
  } catch (const Error& error) {
    return {Health::broken, what, error.what(), ""};
  }
}

bool nothing_broken(std::span<const Finding> findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.health == Health::broken; });
}

std::string to_text(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += padded(name_of(finding.health), health_width) + padded(finding.what, what_width) +
            indented(finding.found) + "\n";
    if (!finding.mend.empty())
      text += std::string(health_width + what_width, ' ') + "mend: " + finding.mend + "\n";
  }
  return text;
}

std::string to_json(std::span<const Finding> findings) {
  JsonWriter json;
  json.begin_object().name("findings").begin_array();
  for (const Finding& finding : findings)
    json.begin_object()
        .member("health", name_of(finding.health))
        .member("what", finding.what)
        .member("found", finding.found)
        .member("mend", finding.mend)
        .end_object();
  json.end_array().member("broken", !nothing_broken(findings)).end_object();
  return json.take();
}

namespace {

// ------------------------------------------------------------------- machine findings

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

namespace {

// ------------------------------------------------------------------- drive

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t block = std::size_t{4} << 20;
constexpr std::int64_t most_blocks = 64;
constexpr auto longest = std::chrono::milliseconds(500);
constexpr double slow_rate = 150e6;  // is bytes a second: a checkpoint of 1B parameters takes minutes

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;

// Opens a file without a name, which is gone when it is closed.
FileDescriptor open_nameless(const fs::path& folder, int flags) {
  std::string name = (folder / ".prun-doctor-XXXXXX").string();
  FileDescriptor file(::mkostemp(name.data(), flags));
  if (file.is_open()) ::unlink(name.c_str());
  return file;
}

// Returns the bytes a second of `move` block by block, until the time is over; a failure is an Error.
template <class Move>
double rate_of(const fs::path& folder, std::int64_t blocks, std::int64_t& done, Move&& move) {
  const Clock::time_point begin = Clock::now();
  for (done = 0; done < blocks && Clock::now() - begin < longest; ++done)
    if (move(done * static_cast<std::int64_t>(block)) != static_cast<ssize_t>(block))
      throw_storage_error("try out", folder, errno);
  return static_cast<double>(done) * static_cast<double>(block) /
         std::max(1e-9, std::chrono::duration<double>(Clock::now() - begin).count());
}

struct Rates {
  double written = 0, read = 0;
};

Rates rates_of(const FileDescriptor& file, const fs::path& folder) {
  const Buffer buffer(std::aligned_alloc(4096, block));
  if (!buffer) throw_error(ErrorCode::unsupported, out_of_memory);
  std::memset(buffer.get(), 7, block);
  std::int64_t blocks = 0;
  Rates rates;
  rates.written = rate_of(folder, most_blocks, blocks, [&](std::int64_t at) {
    return ::fdatasync(file.get()) == 0 ? ::pwrite(file.get(), buffer.get(), block, at) : -1;
  });
  std::int64_t read = 0;
  rates.read = rate_of(folder, blocks, read,
                       [&](std::int64_t at) { return ::pread(file.get(), buffer.get(), block, at); });
  return rates;
}

}  // namespace

Finding drive_finding(const fs::path& folder) {
  bool direct = true;
  Rates rates;
  Finding finding = attempt("drive", [&] {
    const fs::path at = existing_folder(folder);
    const std::int64_t room = free_bytes(at);
    if (room < most_blocks * static_cast<std::int64_t>(block))
      throw_error(ErrorCode::storage, "cannot measure the drive of ", at.string(), ": ", size_text(room),
                  " free; delete files, or set run.out to another folder");
    FileDescriptor file = open_nameless(at, O_DIRECT);
    direct = file.is_open();
    if (!direct) file = open_nameless(at, 0);
    if (!file.is_open()) throw_storage_error("create a file in", at, errno);
    rates = rates_of(file, at);
    return detail::concat(at.string(), ": ", size_text(room), " free, written at ", size_text(rates.written),
                          "/s, read at ", size_text(rates.read), "/s",
                          direct ? "" : ", through the system's cache: no O_DIRECT here");
  });
  if (finding.health == Health::good && (!direct || rates.written < slow_rate)) {
    finding.health = Health::slow;
    finding.mend = "name a folder on a local drive (NVMe) in run.out, or --set run.out=FOLDER";
  }
  return finding;
}

namespace {

// ------------------------------------------------------------------- plugins

template <class Interface>
std::shared_ptr<Interface> with_defaults(PluginHost& plugins, const std::string& kind,
                                         const std::string& name) {
  const PluginNote& note = plugins.note(kind, name);
  const DefaultSection section(parse_schema(note.options, describe(note)));
  return plugins.create<Interface>(kind, name, options_of(section));
}

// A machine without the driver, or with none of its units, trains on another device.
Findings device_findings(PluginHost& plugins, const std::string& name) {
  const std::string what = "device " + name;
  try {
    check_driver(plugins, name);
  } catch (const Error& error) {
    return {{Health::slow, what, error.what(),
             "install the driver where the hardware is here; without it `auto` takes another device"}};
  }
  bool missing = false;
  Findings more;
  Finding finding = attempt(what, [&] {
    DeviceInfo info;
    const auto device = with_defaults<DeviceInterface>(plugins, "device", name);
    raise(device->info(&info));
    missing = info.absent;
    more = examined(*device);
    return std::string(info.name.view()) +
           (info.units > 1 ? detail::concat(", the first of ", info.units) : "");
  });
  if (missing) {
    finding.health = Health::slow;
    finding.mend = "`auto` takes another device; a container needs to be shown them (--gpus all)";
  }
  more.insert(more.begin(), std::move(finding));
  return more;
}

Findings comm_findings(PluginHost& plugins, const std::string& name) {
  Findings more;
  Finding finding = attempt("comm " + name, [&] {
    CommInfo info;
    const auto comm = with_defaults<CommInterface>(plugins, "comm", name);
    raise(comm->info(&info));
    more = examined(*comm);
    return std::string(info.name.view());
  });
  more.insert(more.begin(), std::move(finding));
  return more;
}

}  // namespace

Findings plugin_findings(PluginHost& plugins) {
  Findings all;
  std::set<std::string> unused;  // are comm plugins of devices that are not here
  for (const std::string& name : plugins.automatic_devices()) {
    const Findings found = device_findings(plugins, name);
    if (found.front().health != Health::good) unused.insert(comm_of_device(plugins, name));
    all.insert(all.end(), found.begin(), found.end());
  }
  for (const std::string& name : plugins.catalog().names("comm")) {
    if (unused.count(name) != 0) continue;
    const Findings found = comm_findings(plugins, name);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace prun
