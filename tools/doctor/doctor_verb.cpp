// Implements prun doctor: it checks this machine, and what a recipe needs of it.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "doctor/drive.hpp"
#include "doctor/machine_findings.hpp"
#include "doctor/plugins.hpp"
#include "doctor/recipe_findings.hpp"

namespace prun {
namespace {

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
