// prun ckpt ls | show | verify | diff | reshard | prune.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "inspect/checkpoints.hpp"

namespace prun {
namespace {

int verify(const std::string& where) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::vector<CheckpointVerdict> verdicts = verify_checkpoints(where);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  bool good = true;
  double bytes = 0;
  for (const CheckpointVerdict& verdict : verdicts) {
    bytes += static_cast<double>(verdict.bytes);
    good &= verdict.troubles.empty();
    if (verdict.troubles.empty())
      std::printf("%s: good, %lld tensors, %s\n", verdict.checkpoint.c_str(),
                  static_cast<long long>(verdict.tensors),
                  size_text(static_cast<double>(verdict.bytes)).c_str());
    for (const std::string& trouble : verdict.troubles)
      std::printf("%s: damaged: %s\n", verdict.checkpoint.c_str(), trouble.c_str());
  }
  std::printf("%zu checkpoints read in %.1f s, %s/s\n", verdicts.size(), seconds,
              size_text(bytes / std::max(seconds, 1e-9)).c_str());
  return good ? 0 : exit_code(ErrorCode::bad_input);
}

int diff(const std::string& before, const std::string& after) {
  const CheckpointDifference difference = compare_checkpoints(before, after);
  std::fputs(difference.text.c_str(), stdout);
  if (!difference.tensors_differ) std::printf("all tensors are the same\n");
  return difference.tensors_differ ? 1 : 0;
}

int prune(const Arguments& arguments, const std::string& folder) {
  if (arguments.values.count("--keep") == 0)
    throw_error(ErrorCode::bad_input, "prun ckpt prune needs --keep N: how many checkpoints stay");
  const Keep keep{arguments.number("--keep", 0), arguments.number("--keep-every", 0)};
  for (const std::filesystem::path& removed : prune_checkpoints(folder, keep))
    std::printf("removed %s\n", removed.c_str());
  return 0;
}

}  // namespace

int ckpt_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  const std::string verb = words.empty() ? "" : words[0];
  if (verb == "ls" && words.size() == 2) {
    std::fputs(list_checkpoints(words[1]).c_str(), stdout);
    return 0;
  }
  if (verb == "show" && words.size() == 2) {
    std::fputs(describe_checkpoint(words[1], arguments.has("--recipe")).c_str(), stdout);
    return 0;
  }
  if (verb == "verify" && words.size() == 2) return verify(words[1]);
  if (verb == "diff" && words.size() == 3) return diff(words[1], words[2]);
  if (verb == "reshard" && words.size() == 3) {
    reshard_checkpoint(words[1], words[2], arguments.number("--files", 1));
    std::printf("wrote %s\n", words[2].c_str());
    return 0;
  }
  if (verb == "prune" && words.size() == 2) return prune(arguments, words[1]);
  throw_error(ErrorCode::bad_input,
              "usage: prun ckpt ls RUN | show CKPT [--recipe] | verify CKPT | diff CKPT CKPT | "
              "reshard CKPT FOLDER [--files N] | prune RUN --keep N [--keep-every N]");
}

}  // namespace prun
