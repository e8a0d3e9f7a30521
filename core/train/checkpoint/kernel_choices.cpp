#include "train/checkpoint/kernel_choices.hpp"

#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
std::string kernel_choices(const Assembly& assembly) {
  std::string all;
  for (DeviceInterface* const device : assembly.devices()) {
    Text lines;
    raise(device->choices(&lines));
    all += lines.view();
  }
  return all;
}

const Assembly& with_kernel_choices(const Assembly& assembly) {
  const std::string& resume = assembly.recipe().text("run.resume");
  if (resume.empty()) return assembly;
  const std::optional<Manifest> manifest = manifest_to_go_on_from(resume);
  if (!manifest) return assembly;
  const std::string lines = manifest->choices.for_rank(static_cast<std::size_t>(assembly.rank()));
  for (DeviceInterface* const device : assembly.devices()) raise(device->prefer(lines));
  return assembly;
}

}  // namespace prun
