// Implements prun ckpt ls | show | verify | diff | reshard | prune.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>

#include "base/text.hpp"
#include "ckpt/checkpoints.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"

namespace prun {
namespace {

bool is_good(const CheckpointVerdict& verdict) { return verdict.troubles.empty(); }

void print(const std::vector<CheckpointVerdict>& verdicts, bool quiet) {
  for (const CheckpointVerdict& verdict : verdicts) {
    if (is_good(verdict) && !quiet)
      std::printf("%s: good, %lld tensors, %s\n", verdict.checkpoint.c_str(),
                  static_cast<long long>(verdict.tensors), size_text(verdict.bytes).c_str());
    for (const std::string& trouble : verdict.troubles)
      std::printf("%s: damaged: %s\n", verdict.checkpoint.c_str(), trouble.c_str());
  }
}

int verify(const Arguments& arguments, const std::string& where) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::vector<CheckpointVerdict> verdicts = verify_checkpoints(where);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  double bytes = 0;
  for (const CheckpointVerdict& verdict : verdicts) bytes += static_cast<double>(verdict.bytes);
  if (arguments.has("--json"))
    std::printf("%s\n", to_json(verdicts).c_str());
  else
    print(verdicts, arguments.has("--quiet"));
  if (!arguments.has("--json") && !arguments.has("--quiet"))
    std::printf("%zu checkpoints read in %.1f s, %s/s\n", verdicts.size(), seconds,
                size_text(bytes / std::max(seconds, 1e-9)).c_str());
  const bool good = std::all_of(verdicts.begin(), verdicts.end(), is_good);
  return good ? 0 : exit_code(ErrorCode::bad_input);
}

int diff(const std::string& before, const std::string& after) {
  const CheckpointDifference difference = compare_checkpoints(before, after);
  std::fputs(difference.text.c_str(), stdout);
  if (!difference.tensors_differ) std::printf("all tensors are the same\n");
  return difference.tensors_differ ? 1 : 0;
}

int prune(const Arguments& arguments, const std::string& folder) {
  const CleanEnd clean;
  const Keep keep{arguments.number("--keep", 0), arguments.number("--keep-every", 0)};
  for (const std::filesystem::path& removed : prune_checkpoints(folder, keep))
    std::printf("removed %s\n", removed.c_str());
  return 0;
}

int reshard(const Arguments& arguments, const std::string& from, const std::string& to) {
  const CleanEnd clean;
  reshard_checkpoint(from, to, arguments.number("--files", 1));
  std::printf("wrote %s\n", to.c_str());
  return 0;
}

int ckpt_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  const std::string &verb = words[0], &where = words[1];
  if (verb == "verify") return verify(arguments, where);
  if (verb == "prune") return prune(arguments, where);
  for (const std::string& checkpoint : std::span(words).subspan(1, verb == "diff" ? 2 : 1))
    say_without_latest(checkpoint);
  if (verb == "diff") return diff(where, words[2]);
  const bool json = arguments.has("--json");
  if (verb == "ls")
    std::fputs((json ? checkpoints_json(where) + "\n" : list_checkpoints(where)).c_str(), stdout);
  else if (verb == "show")
    std::fputs((json ? checkpoint_json(where) + "\n" : describe_checkpoint(where, arguments.has("--recipe")))
                   .c_str(),
               stdout);
  else
    return reshard(arguments, where, words[2]);
  return 0;
}

}  // namespace

std::vector<Command> ckpt_verb() {
  return {{"ckpt ls", "RUN", "the checkpoints in the folder of a run", {json_option}, ckpt_command},
          {"ckpt show",
           "CKPT",
           "what one is of: run, progress, plugins, tensors",
           {{"--recipe", "", "the recipe that it was saved with"}, json_option},
           ckpt_command},
          {"ckpt verify",
           "CKPT",
           "compare every byte of one, or of all in a run's folder, with its checksums",
           {json_option, quiet_option},
           ckpt_command},
          {"ckpt diff", "CKPT CKPT", "what differs: progress, recipe, tensors", {}, ckpt_command},
          {"ckpt reshard",
           "CKPT DIR",
           "the same as so many files of whole tensors; none is needed to go on in another layout",
           {{"--files", "N", "files, 1"}},
           ckpt_command},
          {"ckpt prune",
           "RUN",
           "remove the oldest, while no run works in its folder",
           {{"--keep", "N", "newest that stay", true},
            {"--keep-every", "N", "those stay too whose step is a multiple"}},
           ckpt_command}};
}

}  // namespace prun
