#include "reach.hpp"

namespace prun::ucx {
namespace {

const std::set<std::string> in_memory = {"self", "posix", "sysv", "cma", "knem", "xpmem"};
const std::string shared_memory = "shared memory";

struct Lane {
  std::string kind, by;  // "tcp" over "eth0"; "shared memory" by "sysv"; "rdma" over "mlx5_0:1"
};
Lane lane_of(const std::string& name) {
  const std::string transport = name.substr(0, name.find('/'));
  const std::string device = name.substr(name.find('/') + 1);
  if (in_memory.count(transport) != 0) return {shared_memory, transport};
  return {transport == "tcp" ? "tcp" : "rdma", device};
}

}  // namespace

void Reach::add(Where where, const std::set<std::string>& lanes) {
  if (lanes.empty()) return;  // a UCX that prints otherwise: nothing is known
  bool shares = false;
  for (const std::string& name : lanes) {
    const Lane lane = lane_of(name);
    by_kind_[lane.kind].insert(lane.by);
    shares = shares || lane.kind == shared_memory;
  }
  if (where == Where::elsewhere || (where == Where::here && shares)) return;
  if (shares && where == Where::unheard) {
    slow_ = ", looked at every millisecond, since ranks are in several networks of one host";
    mend_ = "let them have one network (containers: --network=host)";
    return;
  }
  slow_ = ", between ranks of one host";
  mend_ = where == Where::unseen
              ? "let them share memory: one namespace of processes and of IPC (containers: --pid=host "
                "--ipc=host)"
              : "let them share memory: one namespace of IPC (containers: --ipc=host), and posix or sysv in "
                "UCX_TLS where that is set";
}

std::string Reach::line(const std::string& group) const {
  std::string found = by_kind_.empty() ? "transports that UCX does not tell" : "";
  for (const auto& [kind, names] : by_kind_) {
    found += (found.empty() ? "" : " and ") + kind + " (";
    for (const std::string& name : names) found += (name == *names.begin() ? "" : ", ") + name;
    found += ")";
  }
  return (slow_.empty() ? "good|" : "slow|") + group + "|" + found + slow_ + "|" + mend_;
}

}  // namespace prun::ucx
