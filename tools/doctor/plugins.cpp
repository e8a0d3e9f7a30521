#include "doctor/plugins.hpp"

#include <set>

#include "prun/comm.hpp"
#include "prun/device.hpp"
#include "train/assemble/automatic.hpp"

namespace prun {
namespace {

template <class Interface>
std::shared_ptr<Interface> with_defaults(PluginHost& plugins, const std::string& kind,
                                         const std::string& name) {
  const PluginNote& note = plugins.note(kind, name);
  const DefaultSection section(parse_schema(note.options, describe(note)));
  return plugins.create<Interface>(kind, name, options_of(section));
}

// A machine without the driver, or with none of its units, trains on another device.
Findings device_findings(PluginHost& plugins, const std::string& name) {
  const std::string what = "device " + name;
  try {
    check_driver(plugins, name);
  } catch (const Error& error) {
    return {{Health::slow, what, error.what(),
             "install the driver where the hardware is here; without it `auto` takes another device"}};
  }
  bool missing = false;
  Findings more;
  Finding finding = attempt(what, [&] {
    DeviceInfo info;
    const auto device = with_defaults<DeviceInterface>(plugins, "device", name);
    raise(device->info(&info));
    missing = info.absent;
    more = examined(*device);
    return std::string(info.name.view()) +
           (info.units > 1 ? detail::concat(", the first of ", info.units) : "");
  });
  if (missing) {
    finding.health = Health::slow;
    finding.mend = "`auto` takes another device; a container needs to be shown them (--gpus all)";
  }
  more.insert(more.begin(), std::move(finding));
  return more;
}

Findings comm_findings(PluginHost& plugins, const std::string& name) {
  Findings more;
  Finding finding = attempt("comm " + name, [&] {
    CommInfo info;
    const auto comm = with_defaults<CommInterface>(plugins, "comm", name);
    raise(comm->info(&info));
    more = examined(*comm);
    return std::string(info.name.view());
  });
  more.insert(more.begin(), std::move(finding));
  return more;
}

}  // namespace

Findings plugin_findings(PluginHost& plugins) {
  Findings all;
  std::set<std::string> unused;  // are comm plugins of devices that are not here
  for (const std::string& name : plugins.automatic_devices()) {
    const Findings found = device_findings(plugins, name);
    if (found.front().health != Health::good) unused.insert(comm_of_device(plugins, name));
    all.insert(all.end(), found.begin(), found.end());
  }
  for (const std::string& name : plugins.catalog().names("comm")) {
    if (unused.count(name) != 0) continue;
    const Findings found = comm_findings(plugins, name);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace prun
