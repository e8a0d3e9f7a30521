// Implements prun runs: it lists the runs of a folder, started here or elsewhere.
#include <cstdio>

#include "cli/command_table.hpp"
#include "runs/run_list.hpp"
#include "runs/status.hpp"

namespace prun {
namespace {

int runs_command(const Arguments& arguments) {
  const std::vector<RunRow> rows = list_runs(arguments.words.empty() ? "runs" : arguments.words[0]);
  const std::string text = arguments.has("--json") ? runs_json(rows) + "\n" : runs_text(rows, now_seconds());
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> runs_verb() {
  return {{"runs",
           "[FOLDER]",
           "the runs in runs/ or FOLDER: state, step, loss, tokens a second",
           {json_option},
           runs_command}};
}

}  // namespace prun
