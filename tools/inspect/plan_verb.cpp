// Implements prun plan: it shows what a recipe needs before anything runs.
#include <cstdio>

#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "estimate/forecast.hpp"
#include "inspect/report.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

int plan_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  const bool lowered = arguments.has("--lowered");
  if (lowered && !arguments.has("--program"))
    throw_error(ErrorCode::bad_input, "--lowered goes with prun plan RECIPE --program");
  Opened opened = open_recipe(arguments, file);
  const Assembly assembly = assemble(opened);
  if (arguments.has("--program"))
    std::fputs(to_text(lowered ? assembly.program() : assembly.unlowered()).c_str(), stdout);
  else if (arguments.has("--json"))
    std::printf("%s\n", plan_json(assembly, forecast(assembly, *opened.plugins, arguments.path("--costs")),
                                  opened.chosen)
                            .c_str());
  else {
    if (!opened.chosen.empty()) std::printf("auto        %s\n", opened.chosen.c_str());
    std::fputs(plan_text(assembly, forecast(assembly, *opened.plugins, arguments.path("--costs"))).c_str(),
               stdout);
  }
  return 0;
}

}  // namespace

std::vector<Command> plan_verb() {
  return {{"plan",
           "RECIPE",
           "batch, ranks, traffic, memory, FLOPs and predicted step time before anything runs",
           {json_option,
            costs_option,
            {"--program", "", "the program as strategies left it"},
            {"--lowered", "", "with --program: as the device runs it"}},
           plan_command}};
}

}  // namespace prun
