// Finds calls into plugins that do not come back.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <thread>

#include "plugin/in_plugin.hpp"

namespace prun {

// While it lives, `found` is told each call that has lasted for longer than `limit`, once, on a thread of the
// watch.
class OverdueWatch {
 public:
  using Found = std::function<void(const PluginAndWhere& call)>;
  OverdueWatch(std::chrono::milliseconds limit, Found found);

 private:
  void run(const std::stop_token& stop) const;

  std::chrono::milliseconds limit_;
  Found found_;
  std::jthread thread_;  // last: it stops before the rest goes
};

}  // namespace prun
