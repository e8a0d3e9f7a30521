#include "host/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace prun::host {

int numa_node_of(std::string address, const std::string& devices) {
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  int node = -1;
  std::ifstream(devices + "/" + address + "/numa_node") >> node;
  return node;
}

bool prefer_numa_node(int node) {
  constexpr int most_nodes = 8 * sizeof(unsigned long);
  if (node < 0 || node >= most_nodes) return false;
  const unsigned long nodes = 1ul << node;
  return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, &nodes, most_nodes) == 0;
}

}  // namespace prun::host
