// Implements prun doctor: it checks this machine, and what a recipe needs of it.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/preflight.hpp"
#include "doctor/findings.hpp"
#include "ranks/rank_answers.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- axis findings
// Finds what carries exchanges over the axes of a recipe's mesh.

// Is one of two ranks that only meet.
class MeetingRank {
 public:
  // This is collective.
  MeetingRank(const Assembly& assembly, PluginHost& plugins, const std::string& plugin, int rank,
              const Exchange& exchange)
      : comm_(make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin)),
        communicator_(make_communicator(*comm_, {"doctor", {0, 1}, rank}, exchange)) {}
  ~MeetingRank() { comm_->destroy(communicator_); }
  MeetingRank(const MeetingRank&) = delete;
  MeetingRank& operator=(const MeetingRank&) = delete;

  Findings findings() { return examined(*comm_); }
  void abort() { comm_->abort(communicator_); }

 private:
  std::shared_ptr<CommInterface> comm_;
  Communicator communicator_;
};

Findings findings_of_two(const Assembly& assembly, const PluginHost& plugins, const std::string& plugin) {
  Findings all;
  RankThreads<MeetingRank> ranks;
  ranks.run(2, [&](int rank, const Exchange& exchange) {
    PluginHost own(plugins.places());
    own.set_local({rank, 2});
    MeetingRank member(assembly, own, plugin, rank, exchange);
    ranks.until_aborted(member, [&] {
      if (rank == 0) all = member.findings();
    });
  });
  std::erase_if(all, [](const Finding& one) { return !one.what.starts_with("doctor["); });
  return all;
}

Finding axis_finding(const Assembly& assembly, PluginHost& plugins, const std::string& axis) {
  Findings met;
  Finding finding = attempt("axis " + axis, [&] {
    const std::string plugin = comm_of_axis(assembly.recipe(), plugins, axis);
    const auto comm = make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin);
    CommInfo info;
    raise(comm->info(&info));
    if (info.host_memory && !info.enqueues && !info.splits) met = findings_of_two(assembly, plugins, plugin);
    const std::string by = "goes by " + plugin + ": ";
    return met.empty() ? by + std::string(info.name.view())
                       : by + met.front().found + ", as two ranks of this host find each other";
  });
  if (met.empty()) return finding;
  finding.health = std::max(finding.health, met.front().health);
  finding.mend = met.front().mend;
  return finding;
}

// Has two ranks of this host find each other, as threads, where the plugin moves the host's memory. What they
// find holds for all ranks of the host that share its namespaces; the start of a run says it of all ranks.
Findings axis_findings(const Assembly& assembly, PluginHost& plugins) {
  Findings all;
  for (const Axis& axis : assembly.mesh().axes())
    if (axis.extent > 1) all.push_back(axis_finding(assembly, plugins, axis.name));
  return all;
}

// ------------------------------------------------------------------- recipe findings
// Checks this machine against what a recipe needs.

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

// Checks as if all its ranks were to run here. Nothing runs, and nothing is left behind.
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

// ------------------------------------------------------------------- doctor verb

void add(Findings& all, Findings more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Raises the limit on open files as far as the system allows. Drivers of GPUs and libraries of networks end
// the process that may open too few: plugins are not asked then.
Findings too_few_files() {
  constexpr rlim_t least = 256;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= least) return {};
  files.rlim_cur = std::min(least, files.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur == least) return {};
  return {{Health::broken, "plugins",
           detail::concat("not examined: drivers crash with fewer than ", least, " open files, and ",
                          files.rlim_max, " are allowed here"),
           "raise the limit (ulimit -n)"}};
}

void examine(const Arguments& arguments, Findings& all) {
  if (Findings few = too_few_files(); !few.empty()) return add(all, std::move(few));
  if (arguments.words.empty()) {
    PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
    add(all, plugin_findings(plugins));
    all.push_back(drive_finding("."));
    return;
  }
  Opened opened;
  all.push_back(attempt("recipe", [&] {
    opened = open_recipe(arguments, arguments.words[0]);
    return opened.chosen.empty() ? arguments.words[0] : "auto stands for " + opened.chosen;
  }));
  if (!opened.recipe) return;
  add(all, plugin_findings(*opened.plugins));
  add(all, recipe_findings(*opened.recipe, *opened.plugins));
}

int doctor_command(const Arguments& arguments) {
  Findings all = machine_findings();
  examine(arguments, all);
  const int code = nothing_broken(all) ? 0 : exit_code(ErrorCode::unsupported);
  if (arguments.has("--quiet"))
    std::erase_if(all, [](const Finding& one) { return one.health == Health::good; });
  std::fputs((arguments.has("--json") ? to_json(all) + "\n" : to_text(all)).c_str(), stdout);
  return code;
}

}  // namespace

std::vector<Command> doctor_verb() {
  return {{"doctor",
           "[RECIPE]",
           "this machine, and what a recipe needs of it: each thing good, slow or broken, with what mends it",
           {json_option, quiet_option},
           doctor_command}};
}

}  // namespace prun
