// Registers the plugin device `nvme`, a tier on this machine's drives.
#include "nvme_device.hpp"

PRUN_PLUGIN(device, prun::nvme::NvmeDevice, "nvme", "0.1.0",
            "Drives of this machine, as a tier for offloaded data",
            "plan=plan_gib; tier=paths; rates=read_rate,write_rate; transfers=stripe_kib,depth",
            PRUN_NVME_OPTIONS);
