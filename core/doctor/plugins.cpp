#include "doctor/plugins.hpp"

#include <set>

#include "assemble/automatic.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"

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
Finding device_finding(PluginHost& plugins, const std::string& name) {
  const std::string what = "device " + name;
  try {
    check_driver(plugins, name);
  } catch (const Error& error) {
    return {Health::slow, what, error.what(),
            "install the driver where the hardware is here; without it `auto` takes another device"};
  }
  bool missing = false;
  Finding finding = attempt(what, [&] {
    DeviceInfo info;
    const auto device = with_defaults<DeviceInterface>(plugins, "device", name);
    raise(device->info(&info));
    missing = !info.host_memory && info.units == 0;
    return std::string(info.name.view()) +
           (info.units > 1 ? detail::concat(", the first of ", info.units) : "");
  });
  if (missing) {
    finding.health = Health::slow;
    finding.mend = "`auto` takes another device; a container needs to be shown them (--gpus all)";
  }
  return finding;
}

Finding comm_finding(PluginHost& plugins, const std::string& name) {
  return attempt("comm " + name, [&] {
    CommInfo info;
    const auto comm = with_defaults<CommInterface>(plugins, "comm", name);
    raise(comm->info(&info));
    return std::string(info.name.view());
  });
}

}  // namespace

Findings plugin_findings(PluginHost& plugins) {
  Findings all;
  std::set<std::string> unused;  // comm plugins of devices that are not here
  for (const std::string& name : plugins.automatic_devices()) {
    all.push_back(device_finding(plugins, name));
    if (all.back().health != Health::good) unused.insert(comm_of_device(plugins, name));
  }
  for (const std::string& name : plugins.catalog().names("comm"))
    if (unused.count(name) == 0) all.push_back(comm_finding(plugins, name));
  return all;
}

}  // namespace prun
