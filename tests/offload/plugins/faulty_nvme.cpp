// The tier nvme over rings that let transfers go wrong, as its option `faults` says.
#include "faulty_ring.hpp"
#include "nvme_device.hpp"

namespace prun::nvme {
namespace {

class FaultyNvme final : public NvmeDevice {
 public:
  explicit FaultyNvme(const Options& options)
      : NvmeDevice(options), faults_(faults_of(options.text("faults"))) {
    faults_.every = options.integer("every");
  }

 private:
  MakeRing make_ring() override { return with_faults(NvmeDevice::make_ring(), faults_); }

  Faults faults_;
};

}  // namespace
}  // namespace prun::nvme

PRUN_PLUGIN(device, prun::nvme::FaultyNvme, "nvme", "0.1.0", "Drives on which transfers go wrong", "",
            PRUN_NVME_OPTIONS
            "faults | string | | | What goes wrong: see faulty_ring.hpp\n"
            "every | int | 7 | 1.. | Of so many transfers one\n");
