#include "doctor/recipe.hpp"

#include <algorithm>

#include "assemble/host_limits.hpp"
#include "assemble/lasting.hpp"
#include "assemble/one_host.hpp"
#include "base/text.hpp"
#include "doctor/drive.hpp"
#include "train/preflight.hpp"
#include "train/run_folder.hpp"

namespace prun {
namespace {

std::string size(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

std::int64_t checkpoint_bytes(const Assembly& assembly) {
  std::int64_t all = 0;
  const std::vector<int> stages =
      assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
  for (const int rank : stages) all += lasting_bytes(assembly.program(), assembly.plan_of(rank).instances);
  return all;
}

// That lie in the folder at the same time, the one that is being written among them.
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
    return detail::concat(assembly->mesh().world(), " ranks, each with ",
                          size(assembly->plan().layout.memory.total() + assembly->process_bytes()));
  }));
  all.push_back(attempt("limits", [&] {
    check_room(needs_of_host(*assembly, plugins), room_on_host());
    return std::string("enough for all ranks");
  }));
  all.push_back(attempt("start", [&] {
    preflight(*assembly, plugins);
    return std::string("data can be read, the folder be written");
  }));
  all.push_back(drive_finding(run_folder(recipe)));
  if (saves(recipe)) all.push_back(attempt("checkpoints", [&] { return checkpoints(*assembly); }));
  return all;
}

}  // namespace prun
