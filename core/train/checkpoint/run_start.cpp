#include "train/checkpoint/run_start.hpp"

#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/resume_notes.hpp"
#include "train/checkpoint/weights.hpp"

namespace prun {

RunStart::RunStart(const Assembly& assembly, const PlanMemory& memory, PluginHost& plugins,
                   const Announce& others, const LossScaler& scaler)
    : assembly_(assembly) {
  if (assembly.recipe().text("run.resume").empty()) {
    progress_.loss_scale = scaler.begin();
    initialize(memory, plugins);
  } else {
    load(memory, plugins, others);
    progress_.loss_scale = scaler.resumed(progress_.loss_scale);
  }
}

void RunStart::initialize(const PlanMemory& memory, PluginHost& plugins) {
  weights_ = open_start_values(assembly_, plugins);
  prun::initialize(assembly_, memory, weights_.get());
  if (weights_ && assembly_.rank() == 0 && has_base(assembly_.program()))
    base_ = weights_->content(host_threads(assembly_.device_info(), assembly_.mesh().world()));
}

void RunStart::load(const PlanMemory& memory, PluginHost& plugins, const Announce& others) {
  const std::unique_ptr<StartValues> base = open_base(assembly_.recipe(), assembly_.program(), plugins);
  loaded_ = load_checkpoint(assembly_, memory, assembly_.recipe().text("run.resume"), others, base.get());
  progress_ = loaded_->manifest.progress;
  base_ = loaded_->manifest.base;
}

std::vector<std::string> RunStart::notes(const std::string& plugins) const {
  if (loaded_) return resume_notes(assembly_, *loaded_, plugins);
  const std::string& init = assembly_.recipe().text("model.init");
  if (init.empty()) return {};
  return {"parameters start from " + init};
}

std::vector<std::string> RunStart::warnings() const {
  return loaded_ ? resume_warnings(*loaded_) : std::vector<std::string>{};
}

}  // namespace prun
