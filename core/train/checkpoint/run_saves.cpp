#include "train/checkpoint/run_saves.hpp"

#include "train/checkpoint/best_checkpoint.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {

RunSaves::RunSaves(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate,
                   const std::optional<LoadedCheckpoint>& from, std::vector<SetSize> sets,
                   std::string plugins, Announce others, std::function<void()> saving, std::string base)
    : assembly_(assembly),
      memory_(memory),
      gate_(gate),
      from_(from),
      folder_(run_folder(assembly.recipe())),
      sets_(std::move(sets)),
      plugins_(std::move(plugins)),
      others_(std::move(others)),
      saving_(std::move(saving)),
      base_(std::move(base)) {}

void RunSaves::claim_folder(std::int64_t step) {
  if (assembly_.rank() != 0) return;
  make_folder(folder_);
  if (!run_.id.empty()) return keep_claim(folder_, run_);
  std::optional<Origin> origin;
  if (from_) origin = {from_->run_folder, from_->manifest.run, from_->manifest.progress.step};
  const RunIdentity run = prun::claim_folder(folder_, origin);
  clear_dead_saves(folder_);
  move_damaged();
  check_places_from(folder_, run, step);
  if (assembly_.recipe().flag("eval.keep_best")) check_best_places(folder_);
  saves_ = last_save(folder_, run);
  run_ = run;
}

// Moves the damaged ones of this folder, so that later checkpoints can be saved in their place.
void RunSaves::move_damaged() const {
  if (!from_) return;
  for (const LoadedCheckpoint::Damaged& damaged : from_->damaged)
    if (std::error_code ignored; std::filesystem::equivalent(damaged.folder.parent_path(), folder_, ignored))
      set_aside(damaged.folder, from_->folder);
}

CheckpointSaver& RunSaves::saver() {
  if (!saver_) saver_.emplace(assembly_, memory_, gate_, plugins_, others_, saving_);
  return *saver_;
}

void RunSaves::begin(const Progress& progress, const SavedSums& sums) {
  claim_folder(progress.step);
  const Recipe& recipe = assembly_.recipe();
  const Keep keep{recipe.integer("run.keep"), recipe.integer("run.keep_every")};
  saver().begin({folder_, run_, ++saves_, keep, sets_, base_}, progress, sums);
}

}  // namespace prun
