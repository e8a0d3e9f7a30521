// The observers of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assemble/plugin_host.hpp"
#include "prun/observer.hpp"

namespace prun {

// All observers of a run. One that fails ends the run: a log with holes is worse than none.
class Observers {
 public:
  Observers(const Recipe& recipe, PluginHost& plugins, std::int64_t rank) {
    if (rank != 0) return;  // the first one speaks for all
    for (const RecipeSection& section : recipe.sections("observer"))
      list_.push_back(plugins.create<ObserverInterface>("observer", section));
  }
  void start(const RunInfo& info) {
    for (auto& observer : list_) raise(observer->start(info));
  }
  void step(const StepInfo& info) {
    for (auto& observer : list_) raise(observer->step(info));
  }
  void event(EventKind kind, const std::string& message) {
    for (auto& observer : list_) raise(observer->event(kind, message));
  }
  void finish(const std::vector<RankMemory>& memory) {
    FinishInfo info;
    info.memory = {memory.data(), memory.size()};
    for (auto& observer : list_) raise(observer->finish(info));
  }

 private:
  std::vector<std::shared_ptr<ObserverInterface>> list_;
};

}  // namespace prun
