#include "conform/observer_check.hpp"

#include <cmath>

#include "conform/tiny_recipe.hpp"
#include "prun/observer.hpp"

namespace prun {
namespace {

StepInfo step_of(std::int64_t step) {
  StepInfo info;
  info.step = step;
  info.loss = 4.5;
  info.grad_norm = 1.25;
  info.lr = 1e-3;
  info.targets = info.tokens = 512;
  info.all_tokens = 512 * step;
  info.seconds = 0.5;
  info.elapsed = 0.5 * static_cast<double>(step);
  return info;
}

// Returns steps that differ from most.
std::vector<StepInfo> steps() {
  std::vector<StepInfo> all = {step_of(1), step_of(2), step_of(3), step_of(4)};
  all[1].exposed_seconds = 0.1;
  all[1].save_seconds = all[1].compare_seconds = 0.2;
  all[2].loss = std::nan("");
  all[2].grad_norm = INFINITY;
  all[2].kept = false;
  all[3].seconds = 0;
  all[3].targets = 0;
  return all;
}

}  // namespace

CheckFinding check_observer(const TriedPlugin& plugin) {
  auto& observer = *static_cast<ObserverInterface*>(plugin.object);
  const TrialFolder place;
  const std::string folder = place.path().string();
  RunInfo run;
  run.name = "trial";
  run.recipe = "trial";
  run.folder = folder;
  run.device = "none";
  run.steps = 4;
  run.parameters = 1000;
  run.tokens_per_step = 512;
  plugin.doing("start()");
  raise(observer.start(run));
  plugin.doing("step()");
  for (const StepInfo& step : steps()) raise(observer.step(step));
  plugin.doing("evaluation()");
  raise(observer.evaluation({4, 4.25, 512, 0.5}));
  plugin.doing("event()");
  for (const EventKind kind :
       {EventKind::note, EventKind::warning, EventKind::saved, EventKind::stopped, EventKind::failed})
    for (const char* const text : {"", "a line", "two\nlines \"and\" \x01 \xff"})
      raise(observer.event(kind, text));
  plugin.doing("finish()");
  const RankMemory memory[] = {{}, {}};
  raise(observer.finish({{memory, 2}, 0.5}));
  return {};
}

}  // namespace prun
