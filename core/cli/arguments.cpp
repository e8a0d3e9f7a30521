#include "cli/arguments.hpp"

#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

const std::vector<std::string> verbs = {"run",     "check",   "plan",      "verify", "trace",  "bench",
                                        "ckpt",    "eval",    "generate",  "import", "export", "tokenize",
                                        "explain", "plugins", "reference", "report", "runs",   "watch",
                                        "diff",    "help",    "version"};
const std::vector<std::string> flags = {"--json",    "--program",   "--lowered", "--all",
                                        "--as-is",   "--simulated", "--no-grid", "--recipe",
                                        "--replace", "--help",      "--version"};
const std::vector<std::string> valued = {
    "--steps",   "--out",        "--costs",  "--ranks",       "--stage", "--files",
    "--keep",    "--keep-every", "--key",    "--end-of-text", "--type",  "--file-size",
    "--threads", "--batches",    "--tokens", "--temperature", "--top-p", "--max-tokens",
    "--seed",    "--tokenizer",  "--setting"};

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

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
  else if (contains(flags, option))
    arguments.flags.insert(option);
  else if (contains(valued, option))
    arguments.values[option] = value_of(argc, argv, i);
  else {
    std::vector<std::string> known = flags;
    known.insert(known.end(), valued.begin(), valued.end());
    known.insert(known.end(), {"--set", "--plugin-path"});
    throw_error(ErrorCode::bad_input, "unknown option ", option, did_you_mean(option, known),
                " See prun --help");
  }
}

}  // namespace

double to_number(const std::string& option, const std::string& text, double least, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= least && number <= most))
    throw_error(ErrorCode::bad_input, option, " takes a number from ", least, " to ", most, ", not ",
                in_quotes(text));
  return number;
}

double Arguments::real(const std::string& option, double fallback, double least, double most) const {
  const auto found = values.find(option);
  return found == values.end() ? fallback : to_number(option, found->second, least, most);
}

std::int64_t Arguments::number(const std::string& option, std::int64_t fallback) const {
  const auto found = values.find(option);
  if (found == values.end()) return fallback;
  const std::string& text = found->second;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1)
    throw_error(ErrorCode::bad_input, option, " takes a count, not ", in_quotes(text));
  return number;
}

std::optional<std::filesystem::path> Arguments::path(const std::string& option) const {
  const auto found = values.find(option);
  if (found == values.end()) return {};
  return found->second;
}

const std::string& Arguments::only_word(const std::string& usage) const {
  if (words.size() != 1) throw_error(ErrorCode::bad_input, "usage: ", usage);
  return words[0];
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  arguments.all.assign(argv, argv + argc);
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
  else if (contains(verbs, arguments.words[0])) {
    arguments.verb = arguments.words[0];
    arguments.words.erase(arguments.words.begin());
  } else {
    arguments.verb = "run";
  }
  return arguments;
}

}  // namespace prun
