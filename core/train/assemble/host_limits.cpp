#include "train/assemble/host_limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>

#include "base/machine.hpp"
#include "base/narrow.hpp"
#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- comm variables

namespace fs = std::filesystem;

constexpr const char* system_shared_memory = "/dev/shm";

// Returns the plugins of the axes along which ranks exchange.
std::set<std::string> comm_plugins(const Recipe& recipe, PluginHost& plugins) {
  std::set<std::string> names;
  const Mesh mesh = mesh_of(recipe);
  for (const Axis& axis : mesh.axes())
    if (axis.extent > 1) names.insert(comm_of_axis(recipe, plugins, axis.name));
  return names;
}

}  // namespace

std::vector<std::string> shared_folder_variables(const Recipe& recipe, PluginHost& plugins) {
  std::vector<std::string> variables;
  for (const std::string& name : comm_plugins(recipe, plugins))
    if (const std::string_view stated = trait_of(plugins.note("comm", name), "shared_folder");
        !stated.empty())
      variables.emplace_back(stated);
  return variables;
}

fs::path shared_memory_folder(const Recipe& recipe, PluginHost& plugins) {
  for (const std::string& variable : shared_folder_variables(recipe, plugins))
    if (const char* const chosen = std::getenv(variable.c_str())) return chosen;
  return system_shared_memory;
}

std::vector<std::pair<std::string, std::string>> log_variables(const Recipe& recipe, PluginHost& plugins,
                                                               const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& name : comm_plugins(recipe, plugins))
    if (const std::string_view stated = trait_of(plugins.note("comm", name), "log"); !stated.empty())
      variables.emplace_back(stated, fs::absolute(folder / (name + ".log")));
  return variables;
}

namespace {

// ------------------------------------------------------------------- host limits

namespace fs = std::filesystem;

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

// These threads are main, rendezvous, data, and the watch over plugins.
constexpr std::int64_t own_threads = 4;
constexpr std::int64_t own_descriptors = 24;
// The launcher has so many descriptors of its own, and so many for each rank.
constexpr std::int64_t launcher_descriptors = 24, descriptors_per_rank = 3;
constexpr std::int64_t flight_record_bytes = 64 << 10;
// A checkpoint's file has this header beside the values.
constexpr std::int64_t header_bytes = 64 << 10;
// A process maps these addresses beside what it keeps in memory: code, libraries, what the allocator sets
// aside.
constexpr std::int64_t mapped_bytes = 64 << 20;

std::int64_t limit_of(int resource, rlim_t rlimit::*which = &rlimit::rlim_cur) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.*which == RLIM_INFINITY)
    return unlimited;
  return static_cast<std::int64_t>(limit.*which);
}

// ------------------------------------------------------------------- needs

// Returns the needs of one rank; `shared_bytes` and `threads` are its part.
HostShare needs_of_rank(const Assembly& assembly, PluginHost& plugins, int rank) {
  const Plan& plan = assembly.plan_of(rank);
  HostShare needs;
  std::size_t queues = plan.queues.size();
  for (const StepPlans& step : assembly.other_steps()) queues += assembly.plan_of(step, rank).queues.size();
  // These make initial values; later one thread writes a save that others read.
  const std::int64_t makers = std::max<std::int64_t>(1, assembly.device_info().threads),
                     savers = 1 + save_readers(plan, assembly.device_info(), assembly.mesh().world());
  needs.threads = own_threads + static_cast<std::int64_t>(queues) + std::max(makers, savers);
  needs.descriptors = own_descriptors;
  const auto bytes_of = [&](Region region) {
    return plan.layout.memory.bytes[static_cast<std::size_t>(region)];
  };
  needs.file_bytes =
      std::max(flight_record_bytes, bytes_of(Region::parameter) + bytes_of(Region::state) + header_bytes);
  std::set<std::string> known;
  each_comm({assembly.recipe(), assembly.device_info(), plugins, assembly.mesh(), plan, rank},
            [&](const QueueTraffic& queue) {
              const CommInfo& info = queue.comm;
              if (known.emplace(info.name.view()).second) needs.threads += info.threads;
              needs.threads += queue.staging.threads;
              needs.descriptors += info.communicator_descriptors;
              needs.shared_bytes += info.communicator_shared_bytes;
              needs.file_bytes = std::max(needs.file_bytes, info.communicator_shared_bytes);
            });
  needs.address_bytes = plan.layout.memory.total() + assembly.process_bytes_of(rank) + mapped_bytes +
                        needs.threads * stack_of_threads();
  return needs;
}

// ------------------------------------------------------------------- room

std::int64_t number_in(const fs::path& file, std::int64_t otherwise) {
  std::int64_t number = 0;
  return std::ifstream(file) >> number ? number : otherwise;  // a file with "max" sets no limit
}

// Returns the room in a control group and all above it.
std::int64_t room_in_group(const fs::path& mount, std::string_view group) {
  std::int64_t room = unlimited;
  fs::path folder = mount / fs::path(group).relative_path();
  for (;; folder = folder.parent_path()) {
    const std::int64_t limit = number_in(folder / "pids.max", unlimited);
    if (limit != unlimited) room = std::min(room, limit - number_in(folder / "pids.current", 0));
    if (folder.native().size() <= mount.native().size()) return room;
  }
}

// Returns the room in all groups: /proc/self/cgroup has "8:pids:/group" where each controller has a tree of
// its own, "0::/group" where they share one.
std::int64_t room_in_groups(const fs::path& root) {
  std::int64_t room = unlimited;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path mount = root / "sys/fs/cgroup";
    if (controllers.empty()) room = std::min(room, room_in_group(mount, line.substr(second + 1)));
    if (controllers == "pids") room = std::min(room, room_in_group(mount / "pids", line.substr(second + 1)));
  }
  return room;
}

std::int64_t threads_of_user(const fs::path& root, uid_t user) {
  std::int64_t count = 0;
  for (const auto& entry : fs::directory_iterator(root / "proc")) {
    if (!std::isdigit(static_cast<unsigned char>(entry.path().filename().native()[0]))) continue;
    std::ifstream status(entry.path() / "status");
    uid_t owner = 0;
    std::int64_t threads = 0;
    for (std::string word; status >> word;)
      if (word == "Uid:")
        status >> owner;
      else if (word == "Threads:")
        status >> threads;
    if (owner == user) count += threads;
  }
  return count;
}

std::int64_t room_for_user(const fs::path& root) {
  const std::int64_t limit = limit_of(RLIMIT_NPROC);
  const uid_t user = ::getuid();
  if (limit == unlimited || user == 0) return unlimited;  // the limit does not apply to root
  return limit - threads_of_user(root, user);
}

std::int64_t room_in_shared_memory(const fs::path& folder) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0 || facts.f_blocks == 0) return unlimited;
  return bytes_left(facts);
}

// Returns one rank of each kind: all others need what one of these does.
std::vector<int> kinds_of(const Assembly& assembly) {
  return assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
}

}  // namespace

HostShare needs_of_host(const Assembly& assembly, PluginHost& plugins) {
  const std::int64_t world = assembly.mesh().world();
  const std::vector<int> kinds = kinds_of(assembly);
  const std::int64_t ranks_of_kind = world / static_cast<std::int64_t>(kinds.size());
  HostShare all;
  all.threads = 2;  // one removes their shared memory, one checks that it is there
  all.descriptors = launcher_descriptors + descriptors_per_rank * world;
  all.shared_folder = shared_memory_folder(assembly.recipe(), plugins);
  for (const int rank : kinds) {
    const HostShare one = needs_of_rank(assembly, plugins, rank);
    all.threads += ranks_of_kind * one.threads;
    all.shared_bytes += ranks_of_kind * one.shared_bytes;
    all.descriptors = std::max(all.descriptors, one.descriptors);
    all.file_bytes = std::max(all.file_bytes, one.file_bytes);
    all.address_bytes = std::max(all.address_bytes, one.address_bytes);
  }
  return all;
}

HostShare needs_of_threads(const Assembly& assembly, PluginHost& plugins) {
  const std::vector<int> kinds = kinds_of(assembly);
  const std::int64_t ranks_of_kind = assembly.mesh().world() / static_cast<std::int64_t>(kinds.size());
  HostShare all = needs_of_host(assembly, plugins);
  all.descriptors = own_descriptors;
  for (const int rank : kinds)
    all.descriptors += ranks_of_kind * (needs_of_rank(assembly, plugins, rank).descriptors - own_descriptors);
  return all;
}

HostShare room_on_host(const fs::path& root, const fs::path& shared_folder) {
  HostShare room;
  room.threads = std::min(room_in_groups(root), room_for_user(root));
  room.descriptors = limit_of(RLIMIT_NOFILE, &rlimit::rlim_max);
  room.file_bytes = limit_of(RLIMIT_FSIZE);
  room.address_bytes = limit_of(RLIMIT_AS);
  room.shared_bytes = room_in_shared_memory(shared_folder);
  room.shared_folder = shared_folder;
  return room;
}

void check_room(const HostShare& needs, const HostShare& room) {
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  if (needs.threads > room.threads)
    throw_error(ErrorCode::unsupported, "the ranks need ", needs.threads, " processes and threads together, ",
                std::max<std::int64_t>(0, room.threads),
                " more are allowed here; raise the limit (pids.max of the container, or ulimit -u) or take "
                "fewer ranks");
  if (needs.descriptors > room.descriptors)
    throw_error(ErrorCode::unsupported, "a process of this run needs ", needs.descriptors, " open files, ",
                room.descriptors, " are allowed here; raise the limit (ulimit -n)");
  if (needs.file_bytes > room.file_bytes)
    throw_error(ErrorCode::unsupported, "a rank writes files of ", size(needs.file_bytes), ", ",
                size(room.file_bytes), " are allowed here; raise the limit on the size of files (ulimit -f)");
  if (needs.address_bytes > room.address_bytes)
    throw_error(ErrorCode::unsupported, "a rank needs ", size(needs.address_bytes), " of address space, ",
                size(room.address_bytes), " are allowed here; raise the limit (ulimit -v)");
  if (needs.shared_bytes > room.shared_bytes)
    throw_error(ErrorCode::unsupported, "the ranks need ", size(needs.shared_bytes),
                " of shared memory together, ", needs.shared_folder.string(), " has ",
                size(room.shared_bytes),
                " left; make it larger (for a container: --shm-size), free some, or take fewer ranks");
}

namespace {

void make_room(const HostShare& needs) {
  check_room(needs, room_on_host("/", needs.shared_folder));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= static_cast<rlim_t>(needs.descriptors))
    return;
  files.rlim_cur = static_cast<rlim_t>(needs.descriptors);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

void make_room_for_ranks(const Assembly& assembly, PluginHost& plugins) {
  make_room(needs_of_host(assembly, plugins));
}

void make_room_for_threads(const Assembly& assembly, PluginHost& plugins) {
  make_room(needs_of_threads(assembly, plugins));
}

void make_room_for_this_rank(const Assembly& assembly, PluginHost& plugins) {
  HostShare needs = needs_of_rank(assembly, plugins, assembly.rank());
  needs.threads = needs.shared_bytes = 0;  // some threads run already, and others share the rest
  make_room(needs);
}

}  // namespace prun
