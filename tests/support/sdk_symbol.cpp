// The SDK library's anchor, for plugins that are linked by hand without it.
#include "prun/plugin.hpp"

extern "C" const char prun_sdk_epoch_1_itanium_libstdcxx11[] = "prun";
