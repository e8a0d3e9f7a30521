#include "train/checkpoint/staged_checkpoint.hpp"

#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/settings.hpp"

namespace prun {
namespace {

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes())
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.extent);
  return text;
}

}  // namespace

void StagedCheckpoint::make_folder() {
  check_place(place.run_folder, place.run, progress.step);
  clear_dead_saves(place.run_folder);
  folder =
      std::make_unique<DurableFolder>(checkpoint_path(place.run_folder, progress.step), Existing::replace);
}

std::filesystem::path StagedCheckpoint::file_of(int rank) const {
  return staging / rank_file_name(static_cast<std::size_t>(rank));
}

std::filesystem::path StagedCheckpoint::put_in_place(const Assembly& assembly, const std::string& plugins) {
  DurableFile file(staging / manifest_name);
  file.write(to_text(manifest(assembly, plugins)));
  file.commit();
  folder->commit_as_latest();
  remove_old_checkpoints(place.run_folder, place.run, place.keep);
  return folder->target();
}

Manifest StagedCheckpoint::manifest(const Assembly& assembly, const std::string& plugins) const {
  Manifest manifest{place.run,
                    place.save,
                    progress,
                    mesh_text(assembly.mesh()),
                    {},
                    choices,
                    settings_of(assembly.recipe()),
                    plugins,
                    {},
                    place.sets,
                    place.base};
  for (const DeviceInfo& device : assembly.device_infos())
    manifest.arithmetic.emplace_back(device.arithmetic.view());
  for (int rank = 0; rank < assembly.mesh().world(); ++rank)
    manifest.files.push_back(file_record(file_of(rank)));
  return manifest;
}

}  // namespace prun
