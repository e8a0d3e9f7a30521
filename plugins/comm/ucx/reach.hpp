// Says in words how a member reaches the others of its group, and whether that is slower than it need be.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace prun::ucx {

// States where a member runs, as another one sees it.
enum class Where : std::uint8_t {
  elsewhere,
  here,
  unseen,   // on this host, in another namespace of processes
  unheard,  // on this host, in another network namespace: shared memory cannot wake it
};

// Describes how members are reached: by which of UCX's transports, and where they run.
class Reach {
 public:
  // Takes lanes such as "sysv/memory" and "tcp/eth0".
  void add(Where where, const std::set<std::string>& lanes);

  // Returns a line of a finding, as Comm::examine() gives it, without its end.
  std::string line(const std::string& group) const;

 private:
  std::map<std::string, std::set<std::string>> by_kind_;  // "shared memory": {"sysv", "cma"}
  std::string slow_, mend_;                               // what is slow, and what makes it faster
};

}  // namespace prun::ucx
