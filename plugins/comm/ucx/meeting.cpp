// A meeting takes two rounds, since the exchange moves blobs of one size: first the sizes, then the blobs.
#include "meeting.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include "wire.hpp"

namespace prun::ucx {
namespace {

// ------------------------------------------------------------------- process id
// Reads /proc/PID/stat, /proc/sys/kernel/random/boot_id and /proc/self/ns.

using Text = std::array<char, 1024>;

std::string_view read_file(const char* path, Text& text) {
  const Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) return {};
  const ssize_t size = ::read(file.number(), text.data(), text.size() - 1);
  if (size <= 0) return {};
  text[static_cast<std::size_t>(size)] = 0;
  return {text.data(), static_cast<std::size_t>(size)};
}

struct ProcessState {
  char letter = 0;  // 0 says that there is no such process
  std::uint64_t started = 0;
};

// `PID (name) S ...`: the name may hold anything, so fields are counted from the last bracket; the state is
// field 3, the start time field 22.
ProcessState state_of(std::int32_t number) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", number);
  Text text;
  std::string_view line = read_file(path.data(), text);
  const std::size_t bracket = line.rfind(") ");
  if (bracket == std::string_view::npos) return {};
  line.remove_prefix(bracket + 2);
  const char letter = line.empty() ? '\0' : line[0];
  for (int field = 3; field < 22; ++field) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return {};
    line.remove_prefix(space + 1);
  }
  return {letter, std::strtoull(line.data(), nullptr, 10)};
}

std::uint64_t machine_id() {
  Text text;
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : read_file("/proc/sys/kernel/random/boot_id", text))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::uint64_t number_of_namespace(const char* file) {
  struct stat facts {};
  return ::stat(file, &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace

ProcessId ProcessId::own() {
  ProcessId id;
  id.machine = machine_id();
  id.name_space = number_of_namespace("/proc/self/ns/pid");
  id.network = number_of_namespace("/proc/self/ns/net");
  id.number = ::getpid();
  id.started = state_of(id.number).started;
  return id;
}

bool ProcessId::running() const {
  const ProcessState state = state_of(number);
  if (state.letter == 0) return false;
  return state.started == started && state.letter != 'Z' && state.letter != 'X' && state.letter != 'x';
}

namespace {

// ------------------------------------------------------------------- meeting

void exchange(const CommGroup& group, const void* mine, std::size_t bytes, void* all) {
  raise(group.exchange->all_gather(group.exchange->context, mine, bytes, all));
}

// Runs the action, then exchanges `size` as it then is: 0 says that something went wrong here.
std::vector<std::uint64_t> run_and_share(const CommGroup& group,
                                         const std::function<std::uint64_t()>& action) {
  std::uint64_t size = 0;
  std::exception_ptr trouble;
  try {
    size = action();
  } catch (...) {
    trouble = std::current_exception();
  }
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size));
  exchange(group, &size, sizeof size, sizes.data());
  if (trouble) std::rethrow_exception(trouble);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0)
      throw_error(ErrorCode::comm_failed, "comm ucx: group ", group.name.view(), ", member ", i,
                  ": it could not start communication; its own message says why");
  return sizes;
}

}  // namespace

void all_do(const CommGroup& group, const std::function<void()>& action) {
  run_and_share(group, [&] {
    action();
    return std::uint64_t{1};
  });
}

std::vector<Member> meet(const CommGroup& group, const std::function<std::vector<std::byte>()>& own_address) {
  const auto members = static_cast<std::size_t>(group.size);
  std::vector<std::byte> address;
  const std::vector<std::uint64_t> sizes = run_and_share(group, [&] {
    address = own_address();
    return std::uint64_t{address.size()};
  });

  const std::size_t blob = sizeof(ProcessId) + *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> mine(blob), all(blob * members);
  const ProcessId process = ProcessId::own();
  std::memcpy(mine.data(), &process, sizeof process);
  std::memcpy(mine.data() + sizeof process, address.data(), address.size());
  exchange(group, mine.data(), blob, all.data());

  std::vector<Member> found(members);
  for (std::size_t i = 0; i < members; ++i) {
    const std::byte* at = all.data() + i * blob;
    std::memcpy(&found[i].process, at, sizeof(ProcessId));
    found[i].address.assign(at + sizeof(ProcessId), at + sizeof(ProcessId) + sizes[i]);
  }
  return found;
}

}  // namespace prun::ucx
