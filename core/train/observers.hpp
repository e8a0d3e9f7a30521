// The observers of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assemble/plugin_host.hpp"
#include "plugin/plugin_lines.hpp"
#include "prun/observer.hpp"

namespace prun {

// All observers of a run. One that fails ends the run: a log with holes is worse than none.
class Observers {
 public:
  Observers(const Recipe& recipe, PluginHost& plugins, std::int64_t rank) {
    if (rank != 0) return;  // the first one speaks for all
    for (const RecipeSection& section : recipe.sections("observer"))
      list_.push_back(plugins.create<ObserverInterface>("observer", section));
    if (!list_.empty()) lines_ = std::make_unique<PluginLines>();
  }
  void start(const RunInfo& info) {
    for (auto& observer : list_) raise(observer->start(info));
    pass_on_lines();
  }
  void step(const StepInfo& info) {
    pass_on_lines();
    for (auto& observer : list_) raise(observer->step(info));
  }
  void evaluation(const EvaluationInfo& info) {
    pass_on_lines();
    for (auto& observer : list_) raise(observer->evaluation(info));
  }
  void event(EventKind kind, const std::string& message) {
    for (auto& observer : list_) raise(observer->event(kind, message));
  }
  void finish(const std::vector<RankMemory>& memory, double save_seconds) {
    pass_on_lines();
    FinishInfo info;
    info.memory = {memory.data(), memory.size()};
    info.save_seconds = save_seconds;
    for (auto& observer : list_) raise(observer->finish(info));
  }

 private:
  // What plugins have said meanwhile.
  void pass_on_lines() {
    if (!lines_) return;
    for (const std::string& line : lines_->take()) event(EventKind::note, line);
  }

  std::vector<std::shared_ptr<ObserverInterface>> list_;
  std::unique_ptr<PluginLines> lines_;
};

}  // namespace prun
