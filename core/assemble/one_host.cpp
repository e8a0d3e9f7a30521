#include "assemble/one_host.hpp"

#include "assemble/does_not_fit.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

void check_units(const DeviceInfo& device, std::int64_t ranks) {
  if (device.units == 0 || ranks <= device.units) return;
  throw_error(ErrorCode::bad_input, "each of the ", ranks, " ranks takes a unit of device '",
              device.name.view(), "', and this machine has ", device.units,
              "; take as many ranks, or device.plugin = \"cpu\"");
}

}  // namespace

void check_fits_one_host(const Assembly& assembly) {
  check_units(assembly.device_info(), assembly.mesh().world());
  const std::vector<DeviceInfo>& devices = assembly.device_infos();
  std::size_t number = 0;
  while (number < devices.size() && !devices[number].host_memory) ++number;
  if (number == devices.size()) return;  // nobody says how much memory the host has
  std::int64_t all = 0;
  for (const int rank : assembly.mesh().ranks())
    all += assembly.bytes_in_memory_of(number, assembly.plan_of(rank)) + assembly.process_bytes_of(rank);
  if (all <= devices[number].memory_bytes) return;
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  throw DoesNotFit(
      ErrorCode::bad_input,
      detail::concat(
          "the ", assembly.mesh().world(), " ranks together need ", size(all), ", this machine has ",
          size(devices[number].memory_bytes),
          "; take fewer ranks, a smaller model or batch.micro, or strategies that share out more"));
}

}  // namespace prun
