// Fills a run's memory with what it begins from: the seed, the weights that model.init names, or the
// checkpoint that it goes on from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/assemble/loss_scale.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {

class RunStart {
 public:
  RunStart(const Assembly& assembly, const PlanMemory& memory, PluginHost& plugins, const Announce& others,
           const LossScaler& scaler);

  const Progress& progress() const { return progress_; }
  const std::optional<LoadedCheckpoint>& loaded() const { return loaded_; }
  // Returns the base for manifests, on the first rank.
  const std::string& base() const { return base_; }
  // Returns what parameters started from if that is neither the seed nor a checkpoint to go on from, until
  // close_weights() is called.
  const StartValues* weights() const { return weights_.get(); }
  void close_weights() { weights_.reset(); }

  // Returns notes on what the run begins from, if that is not the seed; `plugins` is from plugin_record().
  std::vector<std::string> notes(const std::string& plugins) const;
  // Returns what is wrong with the checkpoint, or with those that were to come before it.
  std::vector<std::string> warnings() const;

 private:
  void initialize(const PlanMemory& memory, PluginHost& plugins);
  void load(const PlanMemory& memory, PluginHost& plugins, const Announce& others);

  const Assembly& assembly_;
  std::optional<LoadedCheckpoint> loaded_;
  std::unique_ptr<StartValues> weights_;
  std::string base_;
  Progress progress_;
};

}  // namespace prun
