#include "train/loop/rank_memory.hpp"

#include <fstream>
#include <limits>
#include <sstream>

namespace prun {
namespace {

// Returns the peak. It is not from getrusage, whose figure goes back to before exec, to the process that
// started this one. Huge pages that were set aside are counted separately. A system without such lines gives
// 0.
std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::int64_t bytes = 0;
  for (std::string key; status >> key; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (std::int64_t kibibytes = 0; (key == "VmHWM:" || key == "HugetlbPages:") && status >> kibibytes)
      bytes += kibibytes * 1024;
  return bytes;
}

std::string to_text(const RankMemory& memory) {
  return detail::concat(memory.plan_bytes, " ", memory.process_bytes, " ", memory.peak_bytes, " ",
                        memory.device_plan_bytes, " ", memory.device_process_bytes, " ", memory.device_bytes);
}

RankMemory read_memory(const std::string& text) {
  std::istringstream words(text);
  RankMemory memory;
  words >> memory.plan_bytes >> memory.process_bytes >> memory.peak_bytes >> memory.device_plan_bytes >>
      memory.device_process_bytes >> memory.device_bytes;
  PRUN_CHECK(words, "memory of a rank: '", text, "'");
  return memory;
}

RankMemory memory_of(const Assembly& assembly) {
  const Plan& plan = assembly.plan();
  RankMemory own;
  own.process_bytes = assembly.process_bytes();
  own.peak_bytes = peak_resident_bytes();
  if (assembly.device_info().host_memory) {
    own.plan_bytes = plan.layout.bytes_in_memory();
    return own;
  }
  own.device_plan_bytes = assembly.bytes_in_memory_of(0, plan);
  own.plan_bytes = plan.layout.bytes_in_memory() - own.device_plan_bytes;
  own.device_process_bytes = assembly.process_device_bytes();
  raise(assembly.devices().front()->memory_in_use(&own.device_bytes));
  return own;
}

}  // namespace

std::vector<RankMemory> memory_of_ranks(const Assembly& assembly, const Exchange& exchange) {
  const RankMemory own = memory_of(assembly);
  if (!exchange) return {own};
  std::vector<RankMemory> all;
  for (const std::string& text : exchange("memory", assembly.mesh().ranks(), to_text(own)))
    all.push_back(read_memory(text));
  return all;
}

}  // namespace prun
