// Takes what plugins log with log_line(), from any thread. It goes to a collector where there is one, else to
// stderr.
#pragma once

#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// A program is written as often as the planner tries something: what a strategy says in apply() is told once,
// and not at all by a process that leaves it to another one. So is what data say when they are opened, once
// to each who collects lines.
void leave_applying_to_others();

// While it lives, what data say when this thread opens them is left out: whoever trains on them opens them
// once more, and is told.
class OpenedUnsaid {
 public:
  OpenedUnsaid();
  ~OpenedUnsaid();
  OpenedUnsaid(const OpenedUnsaid&) = delete;
  OpenedUnsaid& operator=(const OpenedUnsaid&) = delete;
};

// Returns what a plugin gets when it is loaded.
const HostApi& host_api();

// Collects lines from now on; what is left at the end goes to stderr. There is one at a time.
class PluginLines {
 public:
  PluginLines();
  ~PluginLines();
  PluginLines(const PluginLines&) = delete;
  PluginLines& operator=(const PluginLines&) = delete;

  // Returns those since the last call: "comm plugin 'ucx': uses shared memory".
  std::vector<std::string> take();
};

}  // namespace prun
