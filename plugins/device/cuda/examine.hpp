// Examines the GPUs of a machine for `prun doctor`.
#pragma once

#include <string>

namespace prun::cuda {

// Returns lines of Device::examine(): the driver, each GPU and where it sits, and which GPUs reach which.
std::string examine_gpus();

}  // namespace prun::cuda
