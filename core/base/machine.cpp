#include "base/machine.hpp"

#include <sched.h>

#include <fstream>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// Returns "model name : Intel..." of the first processor or, if there is none, the architecture.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || trim(std::string_view(line).substr(0, colon)) != "model name") continue;
    return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
#if defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

std::string best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "generic";
}

}  // namespace

Machine this_machine() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  return {printable(cpu_name(), 200), known ? CPU_COUNT(&cores) : 1, best_isa()};
}

std::string to_text(const Machine& machine) {
  return detail::concat(machine.cpu, ", ", machine.cores, machine.cores == 1 ? " core, " : " cores, ",
                        machine.isa);
}

}  // namespace prun
