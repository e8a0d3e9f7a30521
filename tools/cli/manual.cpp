#include "cli/manual.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/text.hpp"
#include "cli/benched.hpp"
#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "prun/plugin.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- manual

constexpr std::string_view purpose = "trains transformer models from a TOML recipe";
constexpr std::string_view stops =
    "Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU end a run after its step: it saves and prints the command "
    "that "
    "resumes. Its exit code is 128 + the signal's number: 130 SIGINT, 143 SIGTERM, 129 SIGHUP, 138 SIGUSR1, "
    "152 "
    "SIGXCPU. Before the first step there is nothing to save, and it ends at once. A signal that was ignored "
    "when "
    "prun was started (nohup, a script's background job, trap '') stays ignored, and the log says so.";
constexpr std::size_t indent = 30, narrowest = 50;

// Verbs as a person comes to need them.
struct Group {
  std::string_view heading, verbs;
};
constexpr std::array<Group, 8> groups = {{
    {"Begin", "demo init doctor"},
    {"Write a recipe", "check plan explain tune convert"},
    {"Prepare data", "tokenize data"},
    {"Train", "run verify bench trace"},
    {"Look at runs", "runs watch report diff"},
    {"Use what was trained", "eval generate ckpt export import"},
    {"Extend", "plugins ops"},
    {"Look up", "help man reference completion version"},
}};

std::vector<const Command*> commands_of(const Group& group) {
  std::vector<const Command*> found;
  for (const std::string_view verb : split(group.verbs, ' '))
    for (const Command* const command : commands_named(verb, {})) found.push_back(command);
  return found;
}

// Breaks words into lines, of which each but the first begins with `from` blanks.
std::string wrapped(std::string_view text, std::size_t from, std::size_t columns) {
  std::string out;
  std::size_t at = from;
  for (const std::string_view word : split(text, ' ')) {
    if (at > from && at + 1 + word.size() > columns) {
      out += "\n" + std::string(from, ' ');
      at = from;
    }
    out += at > from ? " " : "";
    out += word;
    at += word.size() + (at > from ? 1 : 0);
  }
  return out + "\n";
}

// Writes the name to the left, and its help to the right.
std::string entry(const std::string& name, std::string_view help, std::size_t columns) {
  const std::string left = "  " + name;
  const bool fits = left.size() + 2 <= indent;
  return left + (fits ? std::string(indent - left.size(), ' ') : "\n" + std::string(indent, ' ')) +
         wrapped(help, indent, std::max(columns, narrowest));
}

std::string usage_of(const CommandOption& option) {
  return std::string(option.name) + (option.value.empty() ? "" : " " + std::string(option.value));
}

std::string help_of(const CommandOption& option) {
  return std::string(option.help) + (option.needed ? "; needed" : "");
}

std::string options_text(std::span<const CommandOption> options, std::size_t columns) {
  std::string out;
  for (const CommandOption& option : options) out += entry(usage_of(option), help_of(option), columns);
  return out;
}

// ------------------------------------------------------------------- roff

std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return out;
}

std::string item(std::string_view name, std::string_view help) {
  return ".TP\n.B " + roff(name) + "\n" + roff(help) + "\n";
}

std::string items(std::span<const CommandOption> options) {
  std::string out;
  for (const CommandOption& option : options) out += item(usage_of(option), help_of(option));
  return out;
}

}  // namespace

std::string usage_of(const Command& command) {
  std::string text = "prun";
  if (command.name != "run") text += " " + std::string(command.name);
  return command.words.empty() ? text : text + " " + std::string(command.words);
}

std::string usage_with_options(std::span<const Command* const> commands) {
  std::string text;
  for (const Command* const command : commands) {
    text += (text.empty() ? "" : " | ") + usage_of(*command);
    for (const CommandOption& option : command->options)
      text += " " + (option.needed ? usage_of(option) : "[" + usage_of(option) + "]");
  }
  return text;
}

std::string summary(std::size_t columns) {
  std::string out = detail::concat("prun ", purpose, ".\n");
  for (const Group& group : groups) {
    const std::vector<const Command*> listed = commands_of(group);
    if (!listed.empty()) out += detail::concat("\n", group.heading, ":\n");
    for (const Command* const command : listed) out += entry(usage_of(*command), command->help, columns);
  }
  const std::vector<std::string> external = external_verbs();
  if (!external.empty()) out += "\nFrom your path:\n";
  for (const std::string& verb : external)
    out += entry("prun " + verb, "prun-" + verb + " on the path", columns);
  out += "\nOptions; prun COMMAND --help shows those of one command:\n\n" +
         options_text(common_options(), columns) + "\n" + wrapped(stops, 0, std::max(columns, narrowest)) +
         "\nExit codes:\n\n";
  for (const ExitCode& code : exit_codes()) out += entry(std::string(code.code), code.meaning, columns);
  return out;
}

std::string details(std::span<const Command* const> commands, std::size_t columns) {
  std::string out;
  for (const Command* const command : commands)
    out += (out.empty() ? "" : "\n") + usage_of(*command) + "\n  " +
           wrapped(command->help, 2, std::max(columns, narrowest)) + options_text(command->options, columns);
  return out + "\nWith every command:\n" + options_text(common_options(), columns);
}

std::string manual_page() {
  std::string out = detail::concat(".TH PRUN 1 \"\" \"prun ", sdk_version, "\" \"User Commands\"\n");
  out += ".SH NAME\n" + roff(detail::concat("prun - ", purpose)) + "\n.SH SYNOPSIS\n";
  out += ".B prun\nRECIPE [OPTION]...\n.br\n.B prun\nCOMMAND [OPTION]...\n.SH COMMANDS\n";
  for (const Group& group : groups) {
    const std::vector<const Command*> listed = commands_of(group);
    if (!listed.empty()) out += detail::concat(".SS ", group.heading, "\n");
    for (const Command* const command : listed) {
      out += item(usage_of(*command), command->help);
      if (!command->options.empty()) out += ".RS\n" + items(command->options) + ".RE\n";
    }
  }
  out += ".SH OPTIONS\n" + items(common_options()) + ".SH SIGNALS\n" + roff(stops) + "\n.SH EXIT STATUS\n";
  for (const ExitCode& code : exit_codes()) out += item(code.code, code.meaning);
  out += ".SH ENVIRONMENT\n";
  for (const Variable& variable : variables()) out += item(variable.name, variable.help);
  return out;
}

namespace {

// ------------------------------------------------------------------- man verb
// Implements prun man: it writes the table of commands as a manual page.

int man_command(const Arguments&) {
  std::fputs(manual_page().c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> man_verb() {
  return {{"man", "", "this as a manual page: prun man | man -l -", {}, man_command}};
}

namespace {

// ------------------------------------------------------------------- help verb
// Implements prun help: it prints what the table of commands says.

constexpr std::size_t widest = 120;

bool takes_a_strategy(const Command* command) { return command->name == "bench"; }

// Returns what strategies list in their notes.
std::string benches(const Arguments& arguments) {
  std::string text = "\nStrategies that list settings:\n";
  const std::vector<SearchPlace> places = plugin_places({}, {}, arguments.plugin_paths);
  for (const PluginNote& note : benched_strategies(places))
    text += detail::concat("  bench ", note.name, " RECIPE: ", join(benched_settings(note).names(), ", "),
                           "; ", note.help, "\n");
  return text;
}

int help_command(const Arguments& arguments) {
  const std::size_t width = std::min(columns(widest), widest);
  std::vector<const Command*> asked;
  if (!arguments.words.empty())
    asked = commands_named(arguments.words[0], std::span(arguments.words).subspan(1));
  if (asked.empty() && !arguments.words.empty()) {
    std::vector<std::string> known;
    for (const Command& command : commands())
      known.emplace_back(command.name.substr(0, command.name.find(' ')));
    throw_error(ErrorCode::bad_input, "there is no command ", in_quotes(arguments.words[0]),
                did_you_mean(arguments.words[0], known));
  }
  std::fputs((asked.empty() ? summary(width) : details(asked, width)).c_str(), stdout);
  if (std::any_of(asked.begin(), asked.end(), takes_a_strategy))
    std::fputs(benches(arguments).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> help_verb() {
  return {{"help", "[COMMAND]...", "what there is, or the options of one command", {}, help_command}};
}

namespace {

// ------------------------------------------------------------------- version verb
// Implements prun version.

int version_command(const Arguments&) {
  std::printf("prun %s (plugin epoch %u)\n", std::string(sdk_version).c_str(), plugin_epoch);
  return 0;
}

}  // namespace

std::vector<Command> version_verb() {
  return {{"version", "", "of prun and of its plugins", {}, version_command}};
}

}  // namespace prun
