// Places memory beside a GPU: on machines with several NUMA nodes, copies from and to another node's memory
// share the link between processors with all other traffic.
#pragma once

#include <string>

namespace prun::host {

// Returns the node of a PCI device, by its address ("0000:1B:00.0"); -1 if the system does not say, or has
// only one. `devices` is where the system lists them.
int numa_node_of(std::string address, const std::string& devices = "/sys/bus/pci/devices");

// Puts pages that this thread, and those it starts, touch first from now on on that node while it has room.
// Returns false if the system does not allow it: then they are placed as before.
bool prefer_numa_node(int node);

}  // namespace prun::host
