#include "doctor/axis_findings.hpp"

#include <algorithm>

#include "ranks/rank_threads.hpp"
#include "train/assemble/comm_needs.hpp"

namespace prun {
namespace {

// Is one of two ranks that only meet.
class MeetingRank {
 public:
  // This is collective.
  MeetingRank(const Assembly& assembly, PluginHost& plugins, const std::string& plugin, int rank,
              const Exchange& exchange)
      : comm_(make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin)),
        communicator_(make_communicator(*comm_, {"doctor", {0, 1}, rank}, exchange)) {}
  ~MeetingRank() { comm_->destroy(communicator_); }
  MeetingRank(const MeetingRank&) = delete;
  MeetingRank& operator=(const MeetingRank&) = delete;

  Findings findings() { return examined(*comm_); }
  void abort() { comm_->abort(communicator_); }

 private:
  std::shared_ptr<CommInterface> comm_;
  Communicator communicator_;
};

Findings findings_of_two(const Assembly& assembly, const PluginHost& plugins, const std::string& plugin) {
  Findings all;
  RankThreads<MeetingRank> ranks;
  ranks.run(2, [&](int rank, const Exchange& exchange) {
    PluginHost own(plugins.places());
    own.set_local({rank, 2});
    MeetingRank member(assembly, own, plugin, rank, exchange);
    ranks.until_aborted(member, [&] {
      if (rank == 0) all = member.findings();
    });
  });
  std::erase_if(all, [](const Finding& one) { return !one.what.starts_with("doctor["); });
  return all;
}

Finding axis_finding(const Assembly& assembly, PluginHost& plugins, const std::string& axis) {
  Findings met;
  Finding finding = attempt("axis " + axis, [&] {
    const std::string plugin = comm_of_axis(assembly.recipe(), plugins, axis);
    const auto comm = make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin);
    CommInfo info;
    raise(comm->info(&info));
    if (info.host_memory && !info.enqueues && !info.splits) met = findings_of_two(assembly, plugins, plugin);
    const std::string by = "goes by " + plugin + ": ";
    return met.empty() ? by + std::string(info.name.view())
                       : by + met.front().found + ", as two ranks of this host find each other";
  });
  if (met.empty()) return finding;
  finding.health = std::max(finding.health, met.front().health);
  finding.mend = met.front().mend;
  return finding;
}

}  // namespace

Findings axis_findings(const Assembly& assembly, PluginHost& plugins) {
  Findings all;
  for (const Axis& axis : assembly.mesh().axes())
    if (axis.extent > 1) all.push_back(axis_finding(assembly, plugins, axis.name));
  return all;
}

}  // namespace prun
