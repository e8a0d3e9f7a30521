// Implements prun tune: it searches what a recipe leaves out, and writes the best as a recipe that says
// everything.
#include <cstdio>

#include "base/output_file.hpp"
#include "base/text.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_unsettled.hpp"
#include "tune/tune_here.hpp"
#include "tune/tune_text.hpp"

namespace prun {
namespace {

const OutputKind recipe_kind{"a recipe of prun tune", "# Laid out by prun tune"};

TuneGoal goal_of(const Arguments& arguments) {
  const auto said = arguments.values.find("--for");
  if (said == arguments.values.end()) return TuneGoal::time;
  for (const TuneGoal goal : {TuneGoal::time, TuneGoal::memory, TuneGoal::tokens})
    if (said->second == name_of(goal)) return goal;
  throw_error(ErrorCode::bad_input, "--for takes time, memory or tokens, not ", in_quotes(said->second));
}

TuneRequest request_of(const Arguments& arguments) {
  TuneRequest request;
  request.wish = {arguments.number("--ranks", 0), arguments.number("--hosts", 0),
                  arguments.has("--rounding")};
  request.shown = static_cast<std::size_t>(arguments.number("--top", 10));
  request.threads = static_cast<std::size_t>(arguments.number("--threads", 0));
  request.wish.most_batch = arguments.number("--batch-to", 0);
  request.goal = goal_of(arguments);
  if (request.wish.most_batch > 0 && request.goal != TuneGoal::tokens)
    throw_error(ErrorCode::bad_input, "--batch-to lets the batch grow for tokens a second; add --for tokens");
  if (!arguments.has("--json"))
    request.say = [](const std::string& line) { std::fprintf(stderr, "prun: %s\n", line.c_str()); };
  return request;
}

HereRequest here_of(const Arguments& arguments) {
  constexpr double longest = 1e6;
  HereRequest here;
  here.costs = arguments.path("--costs");
  here.measured_seconds = arguments.real("--measure", 0, 1, longest);
  here.tried = static_cast<std::size_t>(arguments.number("--try", 0));
  here.program = arguments.all.front();
  return here;
}

int tune_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  const Opened opened = open_unsettled(arguments, file);
  const TuneRequest request = request_of(arguments);
  const HereRequest here = here_of(arguments);
  if (const auto out = arguments.path("--write")) check_output(*out, recipe_kind);
  const TuneResult result = tune_here(*opened.unsettled, *opened.plugins, request, here);
  if (const auto out = arguments.path("--write"))
    write_cleanly(*out,
                  "# Laid out by prun tune for " + std::to_string(result.ranks) +
                      " ranks; what it chose says so.\n\n" + result.recipe,
                  recipe_kind);
  std::fputs(arguments.has("--json") ? (tune_json(result, request) + "\n").c_str()
                                     : tune_text(result, request).c_str(),
             stdout);
  return 0;
}

}  // namespace

std::vector<Command> tune_verb() {
  return {{"tune",
           "RECIPE",
           "search what the recipe leaves out: mesh, strategies, their options, microbatch",
           {json_option,
            costs_option,
            {"--ranks", "N", "how many to lay it out for; those of the recipe, or one for each unit"},
            {"--hosts", "M", "that share them; as many as the device says"},
            {"--for", "time|memory|tokens",
             "the shortest step, the least memory, or the most tokens a second; time"},
            {"--batch-to", "N", "with --for tokens: batch.global may grow to so many"},
            {"--rounding", "", "also what rounds otherwise"},
            {"--measure", "SECONDS",
             "first measure kernels of the best, the least known first, into the cost table"},
            {"--try", "N", "train the best N for some steps, and take the fastest"},
            {"--write", "FILE", "the best, as a recipe that says everything"},
            {"--top", "N", "how many are shown, 10"},
            {"--threads", "N", "of the search; as many as cores"}},
           tune_command}};
}

}  // namespace prun
