// Implements prun RECIPE: it trains what the recipe describes.
#include <cstdio>
#include <cstdlib>

#include "base/core_shares.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/preflight.hpp"
#include "launch/shared_folder.hpp"
#include "plugin/plugin_lines.hpp"
#include "run/restarts.hpp"
#include "search/what_fits.hpp"
#include "train/assemble/comm_variables.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/tiers.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/rank.hpp"
#include "train/loop/stop_signal.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Quotes the given command where a shell needs it.
std::string shell_quote(const std::string& word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:@%+") ==
          std::string::npos &&
      !word.empty())
    return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string resume_command(const Arguments& arguments, const std::string& file) {
  std::string command = "prun " + shell_quote(file);
  for (const std::string& set : arguments.sets)
    if (set.rfind("run.resume=", 0) != 0) command += " --set " + shell_quote(set);
  for (const fs::path& path : arguments.plugin_paths)
    command += " --plugin-path " + shell_quote(path.string());
  return command;
}

std::unique_ptr<RunClaim> claim_folder(const Recipe& recipe) {
  auto claim = std::make_unique<RunClaim>(recipe);
  if (claim->moved_to())
    std::fprintf(stderr, "prun: the run that was in %s is now in %s\n", run_folder(recipe).c_str(),
                 claim->moved_to()->c_str());
  return claim;
}

void say_crowded(const Assembly& assembly) {
  if (const std::string note = crowded_cores(assembly); !note.empty())
    std::fprintf(stderr, "prun: note: %s\n", note.c_str());
}

void say_choice(const Opened& opened) {
  if (!opened.chosen.empty()) std::fprintf(stderr, "prun: auto stands for %s\n", opened.chosen.c_str());
}

void check_start(const Assembly& assembly, PluginHost& plugins) {
  if (assembly.device_info().absent)
    throw_error(ErrorCode::unsupported, "cannot train on ", assembly.device_info().name.view(),
                "; set device.plugin = \"auto\", which takes what is here");
  const OpenedUnsaid trains_later;
  preflight(assembly, plugins);
  if (const std::string said = no_room_for_save(assembly); !said.empty())
    throw_error(ErrorCode::storage, said);
}

// Starts one process for each rank, which runs the same command. Problems of the recipe are reported here,
// once.
int launch_ranks(const Arguments& arguments, const Opened& opened, const std::string& file, int ranks) {
  opened.plugins->set_local({0, ranks, true, true});
  const Assembly checked = assemble(opened);
  check_start(checked, *opened.plugins);
  say_crowded(checked);
  const LaunchOptions options = or_what_fits(*opened.recipe, *opened.plugins, check_fits_one_host, [&] {
    return ranks_of(checked, *opened.plugins, arguments.all, run_folder(*opened.recipe));
  });
  const std::unique_ptr<RunClaim> claim = claim_folder(*opened.recipe);
  return launch_again(options, run_folder(*opened.recipe), opened.recipe->integer("run.restarts"),
                      resume_command(arguments, file));
}

// Says how many ranks of the recipe each pod has, and gives them its shared memory.
LaunchOptions ranks_of_pod(const Arguments& arguments, const std::string& file, const Identity& pod) {
  const Opened opened = open_recipe(arguments, file, pod);
  const std::int64_t world = mesh_of(*opened.recipe).world();
  if (world % pod.world != 0)
    throw_error(ErrorCode::bad_input, "cannot divide the ", world, " ranks of the mesh equally among ",
                pod.world, " pods; change [mesh] or the replicas of the job");
  LaunchOptions options;
  options.ranks = static_cast<int>(world / pod.world);
  options.shared_folder_variables = shared_folder_variables(*opened.recipe, *opened.plugins);
  return options;
}

int launch_share(const Arguments& arguments, const Identity& pod, LaunchOptions options) {
  const int ranks = options.ranks;
  options.share = ShareOfHost{pod.rank * ranks, pod.world * ranks};
  options.arguments = arguments.all;
  options.environment = {{"PRUN_MASTER_PORT", std::to_string(pod.master_port)}};
  return launch(options);
}

// Makes the folder of shared memory that our own launcher makes for its ranks.
std::unique_ptr<SharedFolder> own_shared_folder(const Opened& opened, const Identity& identity) {
  if (identity.how == "prun" || identity.world == 1) return nullptr;
  std::vector<std::string> variables = shared_folder_variables(*opened.recipe, *opened.plugins);
  std::erase_if(variables, [](const std::string& name) { return std::getenv(name.c_str()) != nullptr; });
  if (variables.empty()) return nullptr;
  auto folder = std::make_unique<SharedFolder>();
  if (!folder->path().empty())
    for (const std::string& name : variables) ::setenv(name.c_str(), folder->path().c_str(), 0);
  return folder;
}

int run_as_rank(const Arguments& arguments, const std::string& file, Session& session) {
  return end_as_rank(session, [&] {
    const Identity& identity = session.identity();
    if (identity.how != "prun") keep_to_share(identity.local_rank, identity.local_world);
    const bool by_others = identity.how != "prun", first = identity.rank == 0 && by_others;
    if (!first) leave_applying_to_others();
    Opened opened = open_recipe(arguments, file, identity);
    check_world(identity, *opened.recipe);
    check_goes_on(*opened.recipe, *opened.plugins);
    const std::unique_ptr<SharedFolder> shared = own_shared_folder(opened, identity);
    if (first) say_choice(opened);
    const Assembly assembly(*opened.recipe, *opened.plugins, identity.rank);
    if (by_others) refuse_idle_tiers(assembly);
    if (by_others) make_room_for_this_rank(assembly, *opened.plugins);
    // What this rank refuses by itself is said before it waits for others, and an older run stays where it is
    // until all have come.
    if (by_others) await_all_ranks(session, *opened.recipe);
    const std::unique_ptr<RunClaim> claim = first ? claim_folder(*opened.recipe) : nullptr;
    return train_rank(assembly, *opened.plugins, resume_command(arguments, file), session);
  });
}

// No launcher beside it says how to go on.
int run_alone(const Assembly& assembly, const Opened& opened, const std::string& command) {
  try {
    return train_alone(assembly, *opened.plugins, command, *opened.flight);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::storage) throw;
    throw_error(error.code(), error.what(), "\nprun:   next, once files can be written: ",
                command_to_go_on(command, run_folder(*opened.recipe)));
  }
}

int run_command(const Arguments& arguments) {
  const StopAtOnce until_steps_run;
  const std::string& file = arguments.words[0];
  const std::optional<Identity> identity = identity_from_environment();
  if (identity && identity->how == "kubernetes")
    if (const LaunchOptions options = ranks_of_pod(arguments, file, *identity); options.ranks > 1)
      return launch_share(arguments, *identity, options);
  if (const std::unique_ptr<Session> session = Session::join()) return run_as_rank(arguments, file, *session);
  Opened opened = open_recipe(arguments, file);
  say_choice(opened);
  const std::int64_t world = mesh_of(*opened.recipe).world();
  if (world > flight_ranks)
    throw_error(ErrorCode::unsupported, "cannot start ", world, " ranks on one host: prun starts at most ",
                flight_ranks, "; start them with srun, mpirun or torchrun");
  if (world > 1 || opened.recipe->integer("run.restarts") > 0)
    return launch_ranks(arguments, opened, file, static_cast<int>(world));
  const Assembly assembly = assemble(opened);
  check_start(assembly, *opened.plugins);
  say_crowded(assembly);
  make_room_for_this_rank(assembly, *opened.plugins);
  remove_dead_shared_folders();
  const std::unique_ptr<RunClaim> claim = claim_folder(*opened.recipe);
  return run_alone(assembly, opened, resume_command(arguments, file));
}

}  // namespace

std::vector<Command> run_verb() { return {{"run", "RECIPE", "train", {}, run_command}}; }

}  // namespace prun
