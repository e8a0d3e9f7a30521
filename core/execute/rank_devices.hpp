// Answers questions about the devices of a rank together, for an executor.
#pragma once

#include <vector>

#include "execute/plan_memory.hpp"
#include "execute/queue_comm.hpp"

namespace prun {

DeviceInfo info_of(DeviceInterface& device);

// Returns the device whose memory counters lie in: asynchronous queues write and await them; the others reach
// any host memory.
DeviceInterface& keeper_of_counters(const Devices& devices);

// Throws if the host cannot write a device's memory, as run.poison does.
void check_poison(const Devices& devices);

// Tells devices which of their queues wait for others': those that exchange wait for other ranks, and any may
// wait for another device's. `comms` is by queue.
void inform_devices(const Plan& plan, const Devices& devices, const std::vector<QueueComm>& comms);

}  // namespace prun
