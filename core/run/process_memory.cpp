#include "run/process_memory.hpp"

#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "base/text.hpp"

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

std::int64_t process_need(const Assembly& assembly, PluginHost& plugins, std::int64_t rank) {
  std::int64_t bytes = base_process_bytes;
  std::set<std::string> known;
  each_comm(assembly, plugins, rank, [&](std::size_t queue, CommInterface& comm) {
    CommInfo info;
    raise(comm.info(&info));
    if (known.emplace(info.name.view()).second) bytes += info.process_bytes;
    bytes += info.communicator_bytes + planned_needs(assembly, comm, rank, queue).memory_bytes;
  });
  return bytes;
}

void check_fits_one_host(const Assembly& assembly) {
  const DeviceInfo& device = assembly.device_info();
  if (!device.host_memory) return;
  std::int64_t all = 0;
  for (const int rank : assembly.mesh().ranks())
    all += assembly.plan_of(rank).layout.memory.total() + assembly.process_bytes_of(rank);
  if (all <= device.memory_bytes) return;
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  throw_error(ErrorCode::bad_input, "the ", assembly.mesh().world(), " ranks together need ", size(all),
              ", this machine has ", size(device.memory_bytes),
              "; take fewer ranks, a smaller model or batch.micro, or strategies that share out more");
}

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
