// What `prun doctor` is told of the GPUs of a machine.
#pragma once

#include <string>

namespace prun::cuda {

// Lines of Device::examine(): the driver, each GPU and where it sits, and which reach which.
std::string examine_gpus();

}  // namespace prun::cuda
