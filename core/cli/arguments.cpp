#include "cli/arguments.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

const std::vector<std::string> verbs = {"run",     "check",     "plan", "explain",
                                        "plugins", "reference", "help", "version"};
const std::vector<std::string> flags = {"--json", "--program", "--all", "--help", "--version"};

std::string value_of(int argc, char** argv, int& i) {
  const std::string option = argv[i];
  if (++i == argc) throw_error(ErrorCode::bad_input, option, " needs a value after it; see prun --help");
  return argv[i];
}

void take_option(Arguments& arguments, int argc, char** argv, int& i) {
  const std::string option = argv[i];
  if (option == "--set")
    arguments.sets.push_back(value_of(argc, argv, i));
  else if (option == "--plugin-path")
    arguments.plugin_paths.emplace_back(value_of(argc, argv, i));
  else if (option == "-h")
    arguments.flags.insert("--help");
  else if (std::find(flags.begin(), flags.end(), option) != flags.end())
    arguments.flags.insert(option);
  else {
    std::vector<std::string> known = flags;
    known.insert(known.end(), {"--set", "--plugin-path"});
    throw_error(ErrorCode::bad_input, "unknown option ", option, did_you_mean(option, known),
                " See prun --help");
  }
}

}  // namespace

const std::string& Arguments::only_word(const std::string& usage) const {
  if (words.size() != 1) throw_error(ErrorCode::bad_input, "usage: ", usage);
  return words[0];
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.size() > 1 && word[0] == '-')
      take_option(arguments, argc, argv, i);
    else
      arguments.words.push_back(word);
  }
  if (arguments.has("--help"))
    arguments.verb = "help";
  else if (arguments.has("--version"))
    arguments.verb = "version";
  else if (arguments.words.empty())
    arguments.verb = "help";
  else if (std::find(verbs.begin(), verbs.end(), arguments.words[0]) != verbs.end()) {
    arguments.verb = arguments.words[0];
    arguments.words.erase(arguments.words.begin());
  } else {
    arguments.verb = "run";
  }
  return arguments;
}

}  // namespace prun
