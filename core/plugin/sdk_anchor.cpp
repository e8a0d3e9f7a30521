// This is the one source of libprun_sdk.so. It defines the symbol whose name carries the SDK's epoch and ABI
// family: every plugin refers to it, so a plugin built for another SDK cannot be loaded, whatever its note
// says.
#include "prun/plugin.hpp"

namespace prun {

static_assert(plugin_epoch == 10, "the anchor's name carries the epoch: rename it here and in plugin.hpp");

extern "C" __attribute__((visibility("default"), used)) const char prun_sdk_epoch_10_itanium_libstdcxx11[] =
    "prun SDK 0.3.0";
static_assert(sdk_version == "0.3.0", "the anchor's text names the SDK's version");

}  // namespace prun
