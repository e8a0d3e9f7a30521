#include "cli/arguments.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/manual.hpp"
#include "prun/error.hpp"
#include "recipe/schema.hpp"
#include "recipe/value.hpp"

namespace prun {
namespace {

std::string value_of(int argc, char** argv, int& i) {
  const std::string option = argv[i];
  if (++i == argc) throw_error(ErrorCode::bad_input, option, " needs a value after it; see prun --help");
  return argv[i];
}

// Options may stand before the command: then whether a value follows is known by the option's name alone.
const CommandOption* find_option(const std::string& name, const std::vector<std::string>& words) {
  const auto is_named = [&](std::string_view command) {
    return !words.empty() &&
           (command == words[0] || (words.size() > 1 && command == words[0] + " " + words[1]));
  };
  for (const CommandOption& option : common_options())
    if (option.name == name) return &option;
  const CommandOption* found = nullptr;
  for (const Command& command : commands())
    for (const CommandOption& option : command.options) {
      if (option.name != name) continue;
      if (is_named(command.name)) return &option;
      if (!found) found = &option;
    }
  return found;
}

std::string hint(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = did_you_mean(word, known);
  return nearest.empty() ? "; see prun --help" : nearest + " See prun --help";
}

// Returns, for "--save-every", "; it is a key of the recipe: --set run.save_every=VALUE."
std::string as_key(const std::string& name) {
  std::string key = name.substr(std::min(name.size(), name.find_first_not_of('-')));
  std::replace(key.begin(), key.end(), '-', '_');
  for (const recipe::SectionRule& rule : recipe::core_sections())
    if (!rule.list && rule.schema.find(key))
      return detail::concat("; it is a key of recipes: --set ", rule.name, ".", key, "=VALUE");
  return {};
}

[[noreturn]] void refuse_option(const std::string& name) {
  std::vector<std::string> known;
  for (const CommandOption& option : common_options()) known.emplace_back(option.name);
  for (const Command& command : commands())
    for (const CommandOption& option : command.options) known.emplace_back(option.name);
  throw_error(ErrorCode::bad_input, "unknown option ", name, as_key(name), hint(name, known));
}

// "--set run.steps 3" would set nothing and train a recipe called 3.
void take_set(Arguments& arguments, int argc, char** argv, int& i) {
  const std::string set = value_of(argc, argv, i);
  const bool followed = i + 1 < argc && argv[i + 1][0] != '-';
  if (followed && set.find('=') == std::string::npos)
    throw_error(ErrorCode::bad_input, "--set takes KEY=VALUE in one word: --set ", printable(set, 200), "=",
                printable(argv[i + 1], 200));
  arguments.sets.push_back(set);
}

void take_option(Arguments& arguments, int argc, char** argv, int& i) {
  const std::string name = argv[i] == std::string_view("-h") ? "--help" : argv[i];
  const CommandOption* const option = find_option(name, arguments.words);
  if (!option) refuse_option(name);
  if (name == "--set")
    take_set(arguments, argc, argv, i);
  else if (name == "--plugin-path")
    arguments.plugin_paths.emplace_back(value_of(argc, argv, i));
  else if (option->value.empty())
    arguments.flags.insert(name);
  else
    arguments.values[name] = value_of(argc, argv, i);
}

// Maps what other systems call a command.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> called_elsewhere = {{
    {"prun", "prun stands once in the line: prun RECIPE trains"},
    {"train", "prun RECIPE trains"},
    {"start", "prun RECIPE trains"},
    {"launch", "prun RECIPE trains"},
    {"resume", "prun RECIPE --set run.resume=FOLDER goes on"},
    {"validate", "prun check RECIPE checks a recipe, prun eval RUN gives the loss on validation data"},
    {"lint", "prun check RECIPE does that"},
    {"dry-run", "prun plan RECIPE does that"},
    {"list", "prun runs lists runs, prun plugins list plugins"},
    {"new", "prun init writes a recipe, prun plugins new a plugin"},
}};

// Returns, for a word that is such a name or near one, "; prun RECIPE trains". Commands of prun are nearer.
std::string named_elsewhere(const std::string& word, const std::vector<std::string>& known) {
  std::vector<std::string> all = known;
  for (const auto& [name, what] : called_elsewhere) all.emplace_back(name);
  const std::string near = std::find(all.begin(), all.end(), word) != all.end() ? word : nearest(word, all);
  for (const auto& [name, what] : called_elsewhere)
    if (name == near) return detail::concat("; ", what, ", see prun --help");
  return {};
}

// Refuses words that begin with no command.
void refuse_unless_recipe(const std::vector<std::string>& words) {
  if (words[0].ends_with(".toml") || (words.size() == 1 && std::filesystem::exists(words[0]))) return;
  std::vector<std::string> known;
  for (const Command& command : commands()) known.emplace_back(command.name);
  for (std::string& verb : external_verbs()) known.push_back(std::move(verb));
  const std::string_view left = left_out ? left_out() : std::string_view();
  if (const std::string said = named_elsewhere(words[0], known); !said.empty())
    throw_error(ErrorCode::bad_input, "there is no command ", in_quotes(words[0]), said, left);
  throw_error(ErrorCode::bad_input, "there is no command ", in_quotes(words[0]),
              words.size() == 1 ? ", and no such file" : "", hint(words[0], known), left);
}

bool goes_with(const std::string& option, const Command& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [&](const CommandOption& known) { return known.name == option; });
}

// An option that the command does not read would otherwise be lost without a word.
void check_options(const Arguments& arguments, std::span<const Command* const> named) {
  std::vector<std::string> given(arguments.flags.begin(), arguments.flags.end());
  for (const auto& [option, value] : arguments.values) given.push_back(option);
  for (const std::string& option : given)
    if (std::none_of(named.begin(), named.end(),
                     [&](const Command* command) { return goes_with(option, *command); }))
      throw_error(ErrorCode::bad_input, usage_of(*named.front()), " has no option ", option, "; see prun ",
                  named.front()->name, " --help");
}

// Checks words and options by the table.
void check_usage(const Arguments& arguments) {
  const std::vector<const Command*> named = commands_named(arguments.verb, arguments.words);
  check_options(arguments, named);
  const auto [least, most] = word_count(*named.front());
  if (named.size() > 1 || arguments.words.size() < least || arguments.words.size() > most)
    throw_error(ErrorCode::bad_input, "usage: ", usage_with_options(named));
  for (const CommandOption& option : named.front()->options)
    if (option.needed && arguments.values.count(std::string(option.name)) == 0)
      throw_error(ErrorCode::bad_input, usage_of(*named.front()), " needs ", option.name, " ", option.value,
                  ": ", option.help, "; usage: ", usage_with_options(named));
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

std::int64_t Arguments::number(const std::string& option, std::int64_t fallback, std::int64_t least) const {
  const auto found = values.find(option);
  if (found == values.end()) return fallback;
  const std::string& text = found->second;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least)
    throw_error(ErrorCode::bad_input, option,
                least > 0 ? " takes a count, not " : " takes 0 or a count, not ", in_quotes(text));
  return number;
}

std::int64_t Arguments::bytes(const std::string& option, std::int64_t fallback) const {
  const auto found = values.find(option);
  if (found == values.end()) return fallback;
  const std::optional<std::int64_t> size = recipe::parse_size(found->second);
  if (!size || *size < 1)
    throw_error(ErrorCode::bad_input, option, " takes a size such as 5GB, not ", in_quotes(found->second));
  return *size;
}

std::optional<std::filesystem::path> Arguments::path(const std::string& option) const {
  const auto found = values.find(option);
  if (found == values.end()) return {};
  return found->second;
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
  if (arguments.has("--help") || arguments.has("--version")) {
    arguments.verb = arguments.has("--help") ? "help" : "version";
    return arguments;
  }
  if (arguments.words.empty())
    arguments.verb = "help";
  else if (commands_named(arguments.words[0], {}).empty()) {
    refuse_unless_recipe(arguments.words);
    arguments.verb = "run";
  } else {
    arguments.verb = arguments.words[0];
    arguments.words.erase(arguments.words.begin());
  }
  check_usage(arguments);
  return arguments;
}

}  // namespace prun
