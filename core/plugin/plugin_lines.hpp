// What plugins say with log_line(), from whatever thread. It goes to whoever collects it, else to stderr.
#pragma once

#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// What a plugin is handed when it is loaded.
const HostApi& host_api();

// Collects lines from now on; what is left at the end goes to stderr. One at a time.
class PluginLines {
 public:
  PluginLines();
  ~PluginLines();
  PluginLines(const PluginLines&) = delete;
  PluginLines& operator=(const PluginLines&) = delete;

  // Those since the last call: "comm plugin 'ucx': uses shared memory".
  std::vector<std::string> take();
};

}  // namespace prun
