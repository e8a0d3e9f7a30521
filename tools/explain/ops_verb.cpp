// Implements prun ops list.
#include <cstdio>

#include "cli/command_table.hpp"
#include "explain/described_ops.hpp"

namespace prun {
namespace {

int ops_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  std::fputs(list_of_ops(described_ops(arguments, words.size() == 2 ? words[1] : "")).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> ops_verb() {
  return {{"ops list",
           "[RECIPE]",
           "the ops that models are written in: prun's own and those of a recipe's plugins",
           {},
           ops_command}};
}

}  // namespace prun
