#include "execute/rank_devices.hpp"

namespace prun {

DeviceInfo info_of(DeviceInterface& device) {
  DeviceInfo info;
  raise(device.info(&info));
  return info;
}

DeviceInterface& keeper_of_counters(const Devices& devices) {
  DeviceInterface* keeper = nullptr;
  for (DeviceInterface* device : devices) {
    const DeviceInfo info = info_of(*device);
    if (!info.asynchronous) continue;
    if (!keeper) keeper = device;
    if (const DeviceInfo first = info_of(*keeper); first.kind.view() != info.kind.view())
      throw_error(ErrorCode::unsupported, "cannot use devices '", first.name.view(), "' and '",
                  info.name.view(),
                  "' in one rank: both are asynchronous, and neither reaches the other's pinned memory; "
                  "leave one of them out");
  }
  return keeper ? *keeper : *devices.front();
}

void check_poison(const Devices& devices) {
  for (DeviceInterface* device : devices)
    if (const DeviceInfo info = info_of(*device); !info.host_memory && !info.tier)
      throw_error(ErrorCode::unsupported, "cannot apply run.poison on device '", info.name.view(),
                  "': the host cannot write its memory; leave run.poison out");
}

void inform_devices(const Plan& plan, const Devices& devices, const std::vector<QueueComm>& comms) {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    bool others = false, staged = false;
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      const bool own = static_cast<std::size_t>(plan.queues[q].device) == d;
      others |= !own || plan.queues[q].axis != no_axis;
      staged |= own && comms[q].comm && comms[q].staged;
    }
    if (others) raise(devices[d]->waits_for_others(staged));
  }
}

}  // namespace prun
