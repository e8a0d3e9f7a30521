#include "train/loop/membership.hpp"

#include "train/assemble/comm_needs.hpp"
#include "train/loop/agreement.hpp"

namespace prun {
namespace {

std::unique_ptr<Communicators> connect(const Assembly& assembly, PluginHost& plugins,
                                       const Membership& membership) {
  if (assembly.mesh().world() == 1 || membership.alone) return nullptr;
  PRUN_CHECK(membership.exchange, "a mesh of ", assembly.mesh().world(), " ranks, and no way to meet them");
  check_agreement(assembly, plugins, membership.exchange);
  return std::make_unique<Communicators>(CommMaking{
      assembly.mesh(), assembly.rank(),
      [&](std::int64_t rank) -> const Plan& { return assembly.plan_of(rank); }, *assembly.devices().front(),
      [&](const std::string& axis) { return comm_of_axis(assembly.recipe(), plugins, axis); },
      [&](const std::string& plugin) {
        return make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin);
      },
      membership.exchange});
}

}  // namespace

std::vector<Probe*> probes_of(const Probes& probes, const Assembly& assembly, Communicators* communicators) {
  return probes ? probes(assembly, communicators) : std::vector<Probe*>{};
}

Announce announce_to_all(const Membership& membership, const Assembly& assembly) {
  if (!membership.exchange) return {};
  return [&membership, &assembly](std::string_view channel, std::string_view mine) {
    return membership.exchange(channel, assembly.mesh().ranks(), mine);
  };
}

Peers::Peers(const Assembly& assembly, PluginHost& plugins, const Membership& membership)
    : communicators_(connect(assembly, plugins, membership)) {
  if (communicators_ && membership.connected) lease_ = membership.connected(*communicators_);
}

}  // namespace prun
