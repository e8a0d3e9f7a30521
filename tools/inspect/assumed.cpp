#include "inspect/assumed.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "train/assemble/one_host.hpp"

namespace prun {
namespace {

// Describes the memory of one device.
struct AssumedMemory {
  std::size_t device = 0;
  std::optional<std::int64_t> bytes;  // those of a rank; nothing: any amount
  std::string key;                    // that of the recipe that sets it, or would; empty: none does
};

std::vector<AssumedMemory> assumed_memory(const Assembly& assembly) {
  std::vector<AssumedMemory> all;
  for (std::size_t device = 0; device < assembly.device_infos().size(); ++device) {
    const std::string key = assembly.key_of_planned_memory(device);
    if (assembly.is_memory_stated(device))
      all.push_back({device, assembly.device_infos()[device].memory_bytes, key});
    else if (assembly.device_info().absent)
      all.push_back({device, {}, key});
  }
  return all;
}

std::string text_of(const Assembly& assembly, const AssumedMemory& memory) {
  const DeviceInfo& device = assembly.device_infos()[memory.device];
  const std::string of = detail::concat(device.tier ? "room on device " : "memory of device ", memory.device,
                                        device.tier ? " for a rank" : "");
  if (memory.bytes) return detail::concat(size_text(*memory.bytes), " of ", of, ", as ", memory.key, " says");
  return "any amount of " + of + (memory.key.empty() ? "" : ": " + memory.key + " says how much there is");
}

std::string ranks_text(const Assembly& assembly) {
  const std::int64_t ranks = ranks_of_host(assembly);
  const std::string key = assembly.key_of_planned_units();
  const std::string who = key.empty() ? ""
                          : ranks > 1 || !assembly.device_info().absent
                              ? ", as " + key + " says"
                              : ": " + key + " says how many share one";
  return (ranks == 1 ? std::string("a host of its own for each rank")
                     : detail::concat(ranks, " ranks on a host")) +
         who;
}

// Says how many threads a device beside the first computes with: where the recipe does not say so, it has the
// cores of this machine.
std::string threads_text(const Assembly& assembly) {
  for (std::size_t device = 1; device < assembly.device_infos().size(); ++device) {
    const DeviceInfo& info = assembly.device_infos()[device];
    if (!info.host_memory || info.tier) continue;
    const std::string key = assembly.key_of_planned_threads(device);
    const bool stated = !key.empty() && assembly.recipe().find(key) && assembly.recipe().integer(key) > 0;
    return detail::concat(
        "device ", device, " with ", info.threads, info.threads == 1 ? " thread" : " threads",
        stated ? ", as " + key + " says"
               : ", as on this machine" + (key.empty() ? "" : ": " + key + " says how many there are"));
  }
  return "";
}

std::vector<std::string> lines_of(const Assembly& assembly) {
  std::vector<std::string> lines;
  for (const AssumedMemory& memory : assumed_memory(assembly)) lines.push_back(text_of(assembly, memory));
  const std::int64_t world = assembly.mesh().world();
  const bool several = ranks_of_host(assembly) < world;
  if (world > 1 && (several || assembly.device_info().absent)) lines.push_back(ranks_text(assembly));
  if (!assembly.device_info().absent) return lines;
  lines.push_back(threads_text(assembly));
  std::erase(lines, "");
  return lines;
}

}  // namespace

std::string assumed_text(const Assembly& assembly) {
  std::string text;
  for (const std::string& line : lines_of(assembly))
    text += (text.empty() ? "assumed     " : "            ") + line + "\n";
  return text;
}

void write_assumed(JsonWriter& json, const Assembly& assembly) {
  const std::vector<std::string> lines = lines_of(assembly);
  json.name("assumed");
  if (lines.empty()) {
    json.null();
    return;
  }
  json.begin_object().member("another_machine", assembly.device_info().absent);
  json.member("ranks_of_host", ranks_of_host(assembly)).name("memory").begin_array();
  for (const AssumedMemory& memory : assumed_memory(assembly)) {
    json.begin_object().member("device", memory.device).member("key", memory.key).name("bytes");
    memory.bytes ? json.value(*memory.bytes) : json.null();
    json.end_object();
  }
  json.end_array().name("said").begin_array();
  for (const std::string& line : lines) json.value(line);
  json.end_array().end_object();
}

std::string crowded_host_note(const Assembly& assembly) {
  const std::optional<HostMemory> host = crowded_host(assembly);
  if (!host) return "";
  return detail::concat("the ", host->ranks, " ranks of a host together need ", size_text(host->needed),
                        ", and it has ", size_text(host->there), ": a run there is refused");
}

std::string crowded_host_text(const Assembly& assembly) {
  const std::string note = crowded_host_note(assembly);
  return note.empty() ? "" : "no room     " + note + "\n";
}

void write_crowded_host(JsonWriter& json, const Assembly& assembly) {
  const std::optional<HostMemory> host = crowded_host(assembly);
  if (!host) return;
  json.name("crowded_host").begin_object().member("ranks", host->ranks);
  json.member("needed_bytes", host->needed).member("there_bytes", host->there).end_object();
}

}  // namespace prun
