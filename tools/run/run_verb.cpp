// Implements prun RECIPE: it trains what the recipe describes.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>

#include "base/durable_file.hpp"
#include "base/machine.hpp"
#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/preflight.hpp"
#include "launch/launcher.hpp"
#include "launch/shared_folder.hpp"
#include "plugin/guarded_plugin.hpp"
#include "prun/visible.hpp"
#include "search/what_fits.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/tiers.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/rank.hpp"
#include "train/loop/stop_signal.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- restarts
// Restarts runs by themselves after a rank was lost.

// Calls launch() and, when a rank was killed, hangs or lost its peers, launch() again from the last
// checkpoint in the run's folder, or as before if there is none. It does so at most `restarts` times in a
// row: without a new checkpoint in between, the next attempt would end as the last one. Each failure is
// reported in the folder's failures.log as well. `command` is what was typed, from which follows what to type
// next.
int launch_again(LaunchOptions options, const std::filesystem::path& run_folder, std::int64_t restarts,
                 const std::string& command);

// Returns the command that goes on from the last checkpoint in the run's folder, or begins anew if there is
// none.
std::string command_to_go_on(const std::string& command, const std::filesystem::path& run_folder);

namespace fs = std::filesystem;

// Says whether another attempt may succeed; a recipe that is refused, a full disk or a loss that diverges
// stay as they are.
bool is_lost(int code) {
  for (const ErrorCode lost : {ErrorCode::rank_died, ErrorCode::hang, ErrorCode::comm_failed})
    if (code == exit_code(lost)) return true;
  return false;
}

// Writes a line down. What ends a run must not be hidden by a file that cannot be written. It is never
// written through a link, which leads elsewhere.
void write_down(const fs::path& file, std::string_view line) {
  const FileDescriptor open(
      ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (open.is_open()) (void)!::write(open.get(), line.data(), line.size());
}

// Returns the checkpoint that a run would go on from, or nothing if there is none.
std::optional<fs::path> last_checkpoint(const fs::path& run_folder) {
  try {
    return find_checkpoint(run_folder);
  } catch (const Error&) {
    return {};
  }
}

// Returns the number of its save, or 0 if there is none.
std::int64_t last_save(const fs::path& run_folder) {
  try {
    const std::optional<fs::path> last = last_checkpoint(run_folder);
    return last ? read_manifest(*last).save : 0;
  } catch (const Error&) {
    return 0;
  }
}

std::string command_to_go_on(const std::string& command, const fs::path& run_folder) {
  return command + (last_save(run_folder) > 0 ? " --set run.resume=" + run_folder.string()
                                              : std::string(" --set run.fresh=true"));
}

int launch_again(LaunchOptions options, const fs::path& run_folder, std::int64_t restarts,
                 const std::string& command) {
  const auto say = [&](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    write_down(run_folder / "failures.log", utc_text(std::time(nullptr)) + " " + visible_lines(line) + "\n");
  };
  options.say = say;
  if (restarts > 0)
    options.next = {};
  else
    options.next = [command, run_folder] { return command_to_go_on(command, run_folder); };
  const std::vector<std::string> words = options.arguments;
  std::int64_t in_a_row = 0;
  for (std::int64_t save = last_save(run_folder);;) {
    const int code = launch(options);
    if (!is_lost(code) || restarts == 0) return code;
    const std::int64_t now = last_save(run_folder);
    in_a_row = now > save ? 1 : in_a_row + 1;
    save = now;
    if (in_a_row > restarts) {
      say(detail::concat("prun: no checkpoint came to be in ", in_a_row,
                         " attempts; giving up after run.restarts = ", restarts));
      return code;
    }
    options.arguments = words;
    if (save > 0)
      options.arguments.insert(options.arguments.end(), {"--set", "run.resume=" + run_folder.string()});
    say(detail::concat(
        "prun: starting the ranks again (", in_a_row, " of ", restarts, " in a row), from ",
        save > 0 ? last_checkpoint(run_folder).value_or(run_folder).string() : "the beginning"));
  }
}

// ------------------------------------------------------------------- run verb

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
    // This rank says what it refuses by itself before it waits for others, and an older run stays where it is
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
