#include "doctor/recipe_findings.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "cli/preflight.hpp"
#include "doctor/axis_findings.hpp"
#include "doctor/drive.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {
namespace {

std::string size(std::int64_t bytes) { return size_text(bytes); }

// Counts checkpoints that are in the folder at the same time, including the one that is being written.
std::int64_t checkpoints_kept(const Recipe& recipe) {
  const std::int64_t every = recipe.integer("run.save_every"), keep = recipe.integer("run.keep");
  const std::int64_t saves = every == 0 ? 1 : recipe.integer("run.steps") / every + 1;
  return keep == 0 ? saves : std::min(saves, keep + 1);
}

std::string checkpoints(const Assembly& assembly) {
  const std::int64_t one = checkpoint_bytes(assembly), count = checkpoints_kept(assembly.recipe());
  const std::filesystem::path folder = run_folder(assembly.recipe());
  const std::int64_t room = free_bytes(folder);
  if (one * count > room)
    throw_error(ErrorCode::storage, count, " of ", size(one), " need ", size(one * count), ", ",
                folder.string(), " has ", size(room),
                " free; set run.keep, or name a larger drive in run.out");
  return detail::concat(count, " of ", size(one), ", ", size(room), " free");
}

// Returns where a run of the recipe writes: its own folder, and those on the drives of its tiers.
std::vector<std::filesystem::path> folders_written(const Recipe& recipe) {
  std::vector<std::filesystem::path> folders = {run_folder(recipe)};
  for (const RecipeSection& section : recipe.all_sections())
    for (const auto& entry : section.entries()) {
      const bool of_tier = entry.path.starts_with("tier.") && entry.path.ends_with(".paths");
      const auto* const paths =
          of_tier && entry.value ? std::get_if<std::vector<std::string>>(&*entry.value) : nullptr;
      if (paths) folders.insert(folders.end(), paths->begin(), paths->end());
    }
  return folders;
}

}  // namespace

Findings recipe_findings(const Recipe& recipe, PluginHost& plugins) {
  std::unique_ptr<Assembly> assembly;
  Findings all = {attempt("plan", [&] {
    assembly = std::make_unique<Assembly>(recipe, plugins);
    return assembly->batch().text();
  })};
  if (!assembly) return all;
  all.push_back(attempt("fits", [&] {
    check_fits_one_host(*assembly);
    const std::int64_t world = assembly->mesh().world();
    return detail::concat(world, world == 1 ? " rank with " : " ranks, each with ",
                          size(assembly->plan().layout.memory.total() + assembly->process_bytes()));
  }));
  all.push_back(attempt("limits", [&] {
    const HostShare needs = needs_of_host(*assembly, plugins);
    check_room(needs, room_on_host("/", needs.shared_folder));
    return std::string("enough for all ranks");
  }));
  for (Finding& finding : axis_findings(*assembly, plugins)) all.push_back(std::move(finding));
  all.push_back(attempt("start", [&] {
    preflight(*assembly, plugins);
    return std::string("data can be read, the folder be written");
  }));
  for (const std::filesystem::path& folder : folders_written(recipe)) all.push_back(drive_finding(folder));
  if (saves(recipe)) all.push_back(attempt("checkpoints", [&] { return checkpoints(*assembly); }));
  return all;
}

}  // namespace prun
