// Takes what plugins log with log_line(), from any thread. It goes to a collector if there is one, otherwise
// to stderr.
#pragma once

#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// Leaves strategies' lines to other processes. A program is written as often as the planner tries something:
// what a strategy logs in apply() is reported once, and not at all by a process that leaves it to another
// one. So is what data plugins log when they are opened, once to each collector of lines.
void leave_applying_to_others();

// Leaves out, while it lives, what data plugins log when this thread opens them: training opens them once
// more, and reports it.
class OpenedUnsaid {
 public:
  OpenedUnsaid();
  ~OpenedUnsaid();
  OpenedUnsaid(const OpenedUnsaid&) = delete;
  OpenedUnsaid& operator=(const OpenedUnsaid&) = delete;
};

// Returns the calls that a plugin gets when it is loaded.
const HostApi& host_api();

// Collects lines from now on; what is left at the end goes to stderr. There is one at a time.
class PluginLines {
 public:
  PluginLines();
  ~PluginLines();
  PluginLines(const PluginLines&) = delete;
  PluginLines& operator=(const PluginLines&) = delete;

  // Returns the lines since the last call, such as "comm plugin 'ucx': uses shared memory".
  std::vector<std::string> take();
};

}  // namespace prun
