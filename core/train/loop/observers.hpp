// Calls the observers of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin/plugin_lines.hpp"
#include "prun/error.hpp"
#include "prun/observer.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Returns the observer that keeps the log of a run whose recipe names none that does; it is empty if none is
// wanted.
std::string unnamed_log(const Recipe& recipe, PluginHost& plugins);

// Holds all observers of a run. One that fails is not called any more, and ends the run once that is saved: a
// log with holes is worse than none.
class Observers {
 public:
  Observers(const Recipe& recipe, PluginHost& plugins, std::int64_t rank) {
    if (rank != 0) return;  // the first rank speaks for all
    for (const RecipeSection& section : recipe.sections("observer"))
      list_.push_back(plugins.create<ObserverInterface>("observer", section));
    if (const std::string log = unnamed_log(recipe, plugins); !log.empty())
      list_.push_back(plugins.create<ObserverInterface>("observer", log, recipe));
    if (!list_.empty()) lines_ = std::make_unique<PluginLines>();
  }
  void start(const RunInfo& info) {
    tell([&](ObserverInterface& observer) { return observer.start(info); });
    pass_on_lines();
  }
  void step(const StepInfo& info) {
    pass_on_lines();
    tell([&](ObserverInterface& observer) { return observer.step(info); });
  }
  void evaluation(const EvaluationInfo& info) {
    pass_on_lines();
    tell([&](ObserverInterface& observer) { return observer.evaluation(info); });
  }
  void event(EventKind kind, const std::string& message) {
    tell([&](ObserverInterface& observer) { return observer.event(kind, message); });
  }
  void finish(const std::vector<RankMemory>& memory, double save_seconds) {
    pass_on_lines();
    FinishInfo info;
    info.memory = {memory.data(), memory.size()};
    info.save_seconds = save_seconds;
    tell([&](ObserverInterface& observer) { return observer.finish(info); });
  }

  bool have_failed() const { return failure_.has_value(); }
  // Throws the error of the first of them that failed.
  void raise_failure() const {
    if (failure_) throw *failure_;
  }

 private:
  template <class Tell>
  void tell(Tell&& tell_one) {
    std::erase_if(list_, [&](const std::shared_ptr<ObserverInterface>& observer) {
      try {
        raise(tell_one(*observer));
        return false;
      } catch (const Error& error) {
        if (!failure_) failure_ = error;
        return true;
      }
    });
  }

  // Passes on the lines that plugins have logged meanwhile.
  void pass_on_lines() {
    if (!lines_) return;
    for (const std::string& line : lines_->take()) event(EventKind::note, line);
  }

  std::vector<std::shared_ptr<ObserverInterface>> list_;
  std::unique_ptr<PluginLines> lines_;
  std::optional<Error> failure_;
};

}  // namespace prun
