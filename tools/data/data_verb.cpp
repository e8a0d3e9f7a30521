// Implements prun data show RECIPE: it shows a sample as training gets it.
#include "cli/command_table.hpp"
#include "data/shown_sample.hpp"

namespace prun {
namespace {

int show_command(const Arguments& arguments) {
  const Opened opened = open_recipe(arguments, arguments.words[1]);
  const ShownSample sample(*opened.recipe, *opened.plugins, arguments.number("--sample", 0, 0));
  sample.print(!arguments.has("--text"));
  return 0;
}

}  // namespace

std::vector<Command> data_verb() {
  return {{"data show",
           "RECIPE",
           "a sample of its data: the tokens, their text, and which of them are learned",
           {{"--sample", "N", "which one, in the order in which they lie; 0"},
            {"--text", "", "the text alone, without a line for each token"}},
           show_command}};
}

}  // namespace prun
