#include "train/rank_memory.hpp"

#include <fstream>
#include <limits>
#include <sstream>

namespace prun {
namespace {

// Not from getrusage: its figure goes back to before exec, to the process that started this one. A system
// that has no such line: 0.
std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (std::int64_t kibibytes = 0; key == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  return 0;
}

std::string to_text(const RankMemory& memory) {
  return detail::concat(memory.plan_bytes, " ", memory.process_bytes, " ", memory.peak_bytes);
}

RankMemory read_memory(const std::string& text) {
  std::istringstream words(text);
  RankMemory memory;
  words >> memory.plan_bytes >> memory.process_bytes >> memory.peak_bytes;
  PRUN_CHECK(words, "memory of a rank: '", text, "'");
  return memory;
}

}  // namespace

std::vector<RankMemory> memory_of_ranks(const Assembly& assembly, const Exchange& exchange) {
  const RankMemory own{assembly.plan().layout.memory.total(), assembly.process_bytes(),
                       peak_resident_bytes()};
  if (!exchange) return {own};
  std::vector<RankMemory> all;
  for (const std::string& text : exchange("memory", assembly.mesh().ranks(), to_text(own)))
    all.push_back(read_memory(text));
  return all;
}

}  // namespace prun
