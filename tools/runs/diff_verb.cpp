// Implements prun diff: it shows in what two runs differ.
#include <cstdio>

#include "cli/command_table.hpp"
#include "runs/diff.hpp"

namespace prun {
namespace {

int diff_command(const Arguments& arguments) {
  const RunDifference difference = compare_runs(arguments.words[0], arguments.words[1]);
  const std::string text = arguments.has("--json") ? to_json(difference) + "\n" : to_text(difference);
  std::fputs(text.c_str(), stdout);
  return difference.differ ? 1 : 0;
}

}  // namespace

std::vector<Command> diff_verb() {
  return {{"diff",
           "RUN RUN",
           "what differs: recipe, versions, plan, from which step on losses part, speed",
           {json_option},
           diff_command}};
}

}  // namespace prun
