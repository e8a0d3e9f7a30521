#include "train/kernel_choices.hpp"

#include "train/checkpoint_folder.hpp"

namespace prun {
namespace {

// Of the best of those that it may go on from whose manifest can be read.
KernelChoices saved_choices(const std::filesystem::path& where) {
  for (const std::filesystem::path& folder : checkpoints_from(where)) try {
      return read_manifest(folder).choices;
    } catch (const Error& error) {
      if (exit_code(error.code()) != exit_code(ErrorCode::bad_input)) throw;
    }
  return {};
}

}  // namespace

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
  const std::string lines = saved_choices(resume).for_rank(static_cast<std::size_t>(assembly.rank()));
  for (DeviceInterface* const device : assembly.devices()) raise(device->prefer(lines));
  return assembly;
}

}  // namespace prun
