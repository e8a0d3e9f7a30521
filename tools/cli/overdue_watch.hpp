// Finds calls into plugins that do not return.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <thread>

#include "plugin/in_plugin.hpp"

namespace prun {

// Calls `found`, while it lives, with each call that has lasted for longer than `limit`, once, on a thread of
// the watch.
class OverdueWatch {
 public:
  using Found = std::function<void(const PluginAndWhere& call)>;
  OverdueWatch(std::chrono::milliseconds limit, Found found);

 private:
  void run(const std::stop_token& stop) const;

  std::chrono::milliseconds limit_;
  Found found_;
  std::jthread thread_;  // declared last, so that it stops before the rest is destroyed
};

}  // namespace prun
