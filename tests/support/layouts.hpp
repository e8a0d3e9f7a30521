// Lists layouts of the tiny recipe, and the devices and comm plugins that run them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace prun::test {

struct Layout {
  const char* name;
  std::string text;  // is added to the recipe
  std::vector<std::string> sets;
};

// Is a device with the comm plugin for ranks that are threads.
struct Target {
  const char* name;
  std::vector<std::string> sets;
};

inline std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }
inline std::ostream& operator<<(std::ostream& out, const Target& target) { return out << target.name; }

inline std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

inline std::vector<Layout> layouts() {
  const std::string data = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n",
                    zero = data + "[[strategy]]\nplugin = 'zero'\nstage = ",
                    pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n";
  return {{"one", "", {}},
          {"recompute", "[[strategy]]\nplugin = 'recompute'\n", {}},
          {"bf16", "", {"precision.compute=bf16"}},
          {"formats",
           zero + "2\n",
           {"precision.compute=bf16", "precision.master=split", "precision.moments=bf16"}},
          {"data", data, {}},
          {"zero1", zero + "1\n", {}},
          {"zero2", zero + "2\n", {}},
          {"zero3", zero + "3\n", {"model.dropout=0.1"}},
          {"coded", zero + "3\n", {"precision.gather=int8", "precision.reduce=int8", "model.hidden=64"}},
          {"tensor", "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\nsequence = true\n", {}},
          {"pipeline", pipeline + "schedule = '1f1b'\n", {}},
          {"zb_v", pipeline + "schedule = 'zb-v'\nchunks = 2\n", {}},
          {"zero_tensor",
           "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
           "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n[[strategy]]\nplugin = 'zero'\nstage = 2\n",
           {}}};
}

// Adds one that trains with weights of one update before, which one rank does not do without a delay.
inline std::vector<Layout> layouts_and_delayed() {
  std::vector<Layout> all = layouts();
  all.push_back({"delayed",
                 "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = '2bw'\n",
                 {"batch.micro=1"}});
  return all;
}

// Leaves out what the layout "coded" rounds, which one rank does not, and has the shape of the others.
inline const std::vector<std::string> without_codes = {"precision.gather=compute", "precision.reduce=state",
                                                       "model.hidden=32"};

inline const std::string data_and_zero =
    "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'zero'\nstage = 2\n";

// Returns all formats of optimizer state, and optimizers that have other states.
inline std::vector<Layout> optimizer_formats() {
  const std::vector<std::string> bf16 = {"precision.compute=bf16"};
  const auto narrow = [&](const std::vector<std::string>& more) { return with(bf16, more); };
  std::vector<Layout> all;
  const auto add = [&](const char* name, const std::vector<std::string>& sets) {
    all.push_back({name, data_and_zero, sets});
  };
  add("fp64", {"precision.compute=fp64", "precision.state=fp64"});
  add("whole_master", bf16);
  add("split_master", narrow({"precision.master=split"}));
  add("no_master", narrow({"precision.master=bf16"}));
  add("moments", narrow({"precision.moments=bf16"}));
  add("all_narrow", narrow({"precision.state=bf16"}));
  add("sgd", {"optimizer.plugin=sgd"});
  add("momentum", {"optimizer.plugin=sgd", "optimizer.momentum=0.9"});
  add("momentum_split", narrow({"optimizer.plugin=sgd", "optimizer.momentum=0.9", "precision.master=split"}));
  add("momentum_no_master",
      narrow({"optimizer.plugin=sgd", "optimizer.momentum=0.9", "precision.state=bf16"}));
  add("a_third_partys", {"optimizer.plugin=halving"});
  all.push_back({"edited", "[[strategy]]\nplugin = 'own-rate-memory'\nsegment = 'block'\n", bf16});
  return all;
}

// Returns the text for updates on the host's cores, over state in its memory.
inline std::string offloaded(bool parameters = false, bool gradients = false, bool activations = false,
                             const std::string& optimizer = "host", const std::string& others = "host") {
  std::string text = "[[strategy]]\nplugin = 'offload'\noptimizer = '" + optimizer + "'\n";
  if (parameters) text += "parameters = '" + others + "'\n";
  if (gradients) text += "gradients = '" + others + "'\n";
  if (activations) text += "activations = '" + others + "'\n";
  return text;
}
// State comes to the device in turn, layer by layer or tensor by tensor.
inline const std::string updated_here = offloaded() + "update = 'device'\n";
inline const std::string by_tensor = "tile = 'tensor'\n", by_layer = "tile = 'layer'\n";
// The planner chooses where all of it lies.
inline const std::string automatic_offload = "[[strategy]]\nplugin = 'offload'\nmode = 'auto'\n";
// Returns the text for a drive, which may have others to serve.
inline std::string drive_in(const std::string& folder) {
  return "[tier.nvme]\npaths = ['" + folder + "']\nchecksum = true\nlimit = 240\n";
}
// Returns the same over state on a drive; `others` says where the rest of them lies.
inline std::string offloaded_to_drives(const std::string& folder, bool parameters = false,
                                       bool gradients = false, bool activations = false,
                                       const std::string& others = "host",
                                       const std::string& optimizer = "nvme") {
  return offloaded(parameters, gradients, activations, optimizer, others) + drive_in(folder);
}
// Returns the text that puts everything on a drive.
inline std::string drives_alone(const std::string& folder) {
  return offloaded_to_drives(folder, true, true, true, "nvme");
}
// Returns the same on another device.
inline std::string offloaded_to(const std::string& device, const std::string& states = "device") {
  return offloaded() + "[[strategy]]\nplugin = 'update-elsewhere'\ndevice = '" + device + "'\nstates = '" +
         states + "'\n";
}

// Returns a text by which each lies in per cent on the device, in the host's memory and on a drive.
inline std::string shared_by_all(const std::string& folder) {
  const std::string shares = "device:30, host:40, nvme:30";
  return offloaded_to_drives(folder, true, true, true, shares, shares);
}

inline Target on_cpu() { return {"cpu", {"device.threads=1", "comm.default=meet", "batch.micro=1"}}; }
inline Target on_async(const std::vector<std::string>& sets = {}) {
  return {"async", with({"device.plugin=cpu-async", "comm.default=meet-async", "batch.micro=1"}, sets)};
}
inline std::vector<Target> targets() { return {on_cpu(), on_async({"device.delay_us=20"})}; }

}  // namespace prun::test
