// Reads /proc/PID/stat, /proc/sys/kernel/random/boot_id and /proc/self/ns.
#include "process_id.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "descriptor.hpp"

namespace prun::ucx {
namespace {

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

}  // namespace prun::ucx
