#include "nvme_device.hpp"

PRUN_PLUGIN(device, prun::nvme::NvmeDevice, "nvme", "0.1.0",
            "Drives of this machine, for what memory has no room for", "plan=plan_gib", PRUN_NVME_OPTIONS);
