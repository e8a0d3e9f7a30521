#include "assemble/one_host.hpp"

#include "base/text.hpp"

namespace prun {

void check_fits_one_host(const Assembly& assembly) {
  const DeviceInfo& device = assembly.device_info();
  if (!device.host_memory) return;
  std::int64_t all = 0;
  for (const int rank : assembly.mesh().ranks())
    all += assembly.plan_of(rank).layout.memory.total() + assembly.process_bytes_of(rank);
  if (all <= device.memory_bytes) return;
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  throw_error(ErrorCode::bad_input, "the ", assembly.mesh().world(), " ranks together need ", size(all),
              ", this machine has ", size(device.memory_bytes),
              "; take fewer ranks, a smaller model or batch.micro, or strategies that share out more");
}

}  // namespace prun
