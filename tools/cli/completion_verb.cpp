// Implements prun completion: it writes the table of commands for a shell.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "cli/benched.hpp"
#include "cli/command_table.hpp"
#include "prun/error.hpp"
#include "recipe/schema.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- settable
// Lists what may follow --set, for shells that complete it.

struct SettableKey {
  std::string path;                 // path such as "optimizer.lr", "strategy.0.stage"
  std::vector<std::string> values;  // values to choose from; empty: they are unknown
};

constexpr int listed_items = 4;

// Collects keys; one that several plugins have takes what any of them takes.
class Keys {
 public:
  explicit Keys(const PluginCatalog& catalog) : catalog_(catalog) {}

  void add_section(const SectionRule& rule) {
    if (!rule.list) return add_under(rule, rule.name + ".");
    for (int item = 0; item < listed_items; ++item)
      add_under(rule, rule.name + "." + std::to_string(item) + ".");
  }
  std::vector<SettableKey> take() const {
    std::vector<SettableKey> keys;
    for (const auto& [path, values] : found_) keys.push_back({path, {values.begin(), values.end()}});
    return keys;
  }

 private:
  void add_under(const SectionRule& rule, const std::string& prefix) {
    add_options(rule.schema, prefix);
    each_plugin(rule.plugin_kind, [&](const std::string& name, const Schema& schema) {
      found_[prefix + "plugin"].insert(name);
      add_options(schema, prefix);
    });
    each_plugin(rule.table_kind, [&](const std::string& name, const Schema& schema) {
      add_options(schema, prefix + name + ".");
    });
  }

  template <class Body>
  void each_plugin(const std::string& kind, Body&& body) {
    if (kind.empty()) return;
    for (const std::string& name : catalog_.names(kind))
      if (const Schema* const schema = catalog_.schema(kind, name)) body(name, *schema);
  }

  void add_options(const Schema& schema, const std::string& prefix) {
    for (const Option& option : schema.options()) {
      if (option.key == "*") continue;
      std::set<std::string>& values = found_[prefix + option.key];
      values.insert(option.choices.begin(), option.choices.end());
      if (option.type == OptionType::boolean) values.insert({"true", "false"});
    }
  }

  const PluginCatalog& catalog_;
  std::map<std::string, std::set<std::string>> found_;
};

// Returns the keys of the core and of all plugins that the catalog names, in order of their paths. Lists give
// their first items.
std::vector<SettableKey> settable_keys(const PluginCatalog& catalog) {
  Keys keys(catalog);
  for (const SectionRule& rule : core_sections()) keys.add_section(rule);
  return keys.take();
}

}  // namespace
}  // namespace prun::recipe

namespace prun {
namespace {

// ------------------------------------------------------------------- completion
// Writes scripts by which shells complete command lines of prun.

// Holds what depends on the installed plugins: keys that may follow --set, and strategies that can be
// benched.
struct Completed {
  std::vector<recipe::SettableKey> keys;
  std::vector<std::string> strategies;
};

// Returns what may stand for a word of the table: words to choose from, or @recipes, @files, @folders, @keys;
// for other words nothing is known.
std::string kind_of(std::string_view word) {
  while (!word.empty() && word.front() == '[') word.remove_prefix(1);
  while (!word.empty() && (word.back() == ']' || word.back() == '.')) word.remove_suffix(1);
  if (word.find('|') != std::string_view::npos) {
    std::string choices;
    for (const std::string_view choice : split(word, '|')) {
      const std::string kind = kind_of(choice);
      choices += (choices.empty() ? "" : " ") + (kind.empty() ? std::string(choice) : kind);
    }
    return choices;
  }
  if (word == "RECIPE") return "@recipes";
  if (word == "KEY=VALUE") return "@keys";
  for (const std::string_view folder : {"RUN", "CKPT", "DIR", "FOLDER"})
    if (word == folder) return "@folders";
  for (const std::string_view file : {"FILE", "TOKENIZER", "PATH", "PREFIX"})
    if (word == file) return "@files";
  return "";
}

std::string branch(const std::string& pattern, const std::string& text) {
  return "    " + pattern + ") echo '" + text + "' ;;\n";
}

std::string in_ticks(std::string_view text) { return "'" + std::string(text) + "'"; }

// Writes a shell function that answers a word by the table.
std::string function(const std::string& name, const std::string& branches) {
  return name + "() {\n  case $1 in\n" + branches + "  esac\n}\n\n";
}

// Is the table of commands, with one for each strategy in the place of the one that takes any.
class Table {
 public:
  explicit Table(const Completed& completed) : keys(completed.keys) {
    for (const std::string& strategy : completed.strategies) names_.push_back("bench " + strategy);
    for (const Command& command : prun::commands())
      if (command.name != "bench")
        commands.push_back(command);
      else
        add_each(command);
  }

  std::vector<Command> commands;
  const std::vector<recipe::SettableKey>& keys;

 private:
  // The first of the command's words is then part of the name.
  void add_each(Command command) {
    command.words.remove_prefix(std::min(command.words.find(' ') + 1, command.words.size()));
    for (const std::string& name : names_) {
      command.name = name;
      commands.push_back(command);
    }
  }

  std::vector<std::string> names_;
};

std::string first_words(const Table& table) {
  std::set<std::string> all;
  for (const Command& command : table.commands) all.emplace(split(command.name, ' ')[0]);
  std::string out;
  for (const std::string& word : all) out += (out.empty() ? "" : " ") + word;
  return out;
}

// Writes second words of commands that have them, by the first.
std::string second_words(const Table& table) {
  std::string out, open, words;
  const auto close = [&] {
    if (!open.empty()) out += branch(open, words);
    open.clear(), words.clear();
  };
  for (const Command& command : table.commands) {
    const std::vector<std::string_view> parts = split(command.name, ' ');
    if (parts.size() < 2) continue;
    if (parts[0] != open) close();
    open = parts[0];
    words += (words.empty() ? "" : " ") + std::string(parts[1]);
  }
  close();
  return out;
}

std::string options_by_command(const Table& table) {
  std::string out, common;
  for (const CommandOption& option : common_options()) common += " " + std::string(option.name);
  for (const Command& command : table.commands) {
    std::string names;
    for (const CommandOption& option : command.options) names += std::string(option.name) + " ";
    if (!names.empty()) out += branch(in_ticks(command.name), names + std::string(trim(common)));
  }
  return out + branch("*", std::string(trim(common)));
}

// Writes what follows "COMMAND OPTION", for all options that take a value, and values of a recipe's key for
// "COMMAND KEY=".
std::string values_by_option(const Table& table) {
  std::string out;
  const auto add = [&](const std::string& command, const CommandOption& option) {
    if (!option.value.empty())
      out += branch(command + in_ticks(" " + std::string(option.name)), kind_of(option.value));
  };
  for (const Command& command : table.commands)
    for (const CommandOption& option : command.options) add(in_ticks(command.name), option);
  for (const CommandOption& option : common_options()) add("*", option);
  for (const recipe::SettableKey& key : table.keys)
    if (!key.values.empty()) out += branch("*" + in_ticks(" " + key.path + "="), join(key.values, " "));
  return out + "    *) return 1 ;;\n";
}

// Writes, for "COMMAND N", its word of that number, from 0; a word with dots repeats.
std::string words_by_place(const Table& table) {
  std::string out;
  for (const Command& command : table.commands) {
    if (command.words.empty()) continue;
    const std::vector<std::string_view> words = split(command.words, ' ');
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool repeats = words[i].find("...") != std::string_view::npos;
      const std::string place = repeats ? in_ticks(std::string(command.name) + " ") + "*"
                                        : in_ticks(detail::concat(command.name, " ", i));
      if (!kind_of(words[i]).empty()) out += branch(place, kind_of(words[i]));
    }
  }
  return out;
}

std::string keys_branch(const Table& table) {
  std::string paths;
  for (const recipe::SettableKey& key : table.keys) paths += (paths.empty() ? "" : " ") + key.path;
  return branch("*", paths);
}

std::string tables(const Table& table) {
  return function("_prun_second_words", second_words(table)) +
         function("_prun_options", options_by_command(table)) +
         function("_prun_value", values_by_option(table)) + function("_prun_word", words_by_place(table)) +
         function("_prun_keys", keys_branch(table));
}

// Both shells do this: it goes over the words before the one at hand and sets `kind` to what that may be.
constexpr std::string_view look_back = R"sh(  for word in "${before[@]}"; do
    if [ "$word" = '=' ]; then pending="$last="; continue; fi
    last=$word
    if [ -n "$pending" ]; then pending=; continue; fi
    case $word in
      -*) if _prun_value "$command $word" >/dev/null; then pending=$word; fi ;;
      *)
        if [ -z "$command" ]; then
          case " $verbs " in
            *" $word "*) command=$word ;;
            *) command=run place=1 ;;
          esac
        elif [ "$place" -eq 0 ] && [ -n "$(_prun_second_words "$command")" ]; then
          command="$command $word"
        else
          place=$((place + 1))
        fi ;;
    esac
  done
  if [ -n "$pending" ]; then
    case $current in
      *=*) prefix=${current%%=*}=; kind=$(_prun_value "$command $prefix") ;;
      *) kind=$(_prun_value "$command $pending") ;;
    esac
  elif [ "${current#-}" != "$current" ]; then kind=$(_prun_options "$command")
  elif [ -z "$command" ]; then kind="$verbs @recipes"
  elif [ "$place" -eq 0 ] && [ -n "$(_prun_second_words "$command")" ]; then kind=$(_prun_second_words "$command")
  else kind=$(_prun_word "$command $place")
  fi
)sh";

std::string bash_script(const Table& table) {
  return "# bash completion of prun, written by: prun completion bash\n\n" + tables(table) +
         R"sh(_prun_add() {
  local one
  while IFS= read -r one; do COMPREPLY+=("$one"); done < <(compgen "$@" -- "$current")
}

_prun() {
  local current=${COMP_WORDS[COMP_CWORD]} command= pending= kind= word last= prefix= place=0 verbs=')sh" +
         first_words(table) + R"sh('
  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  if [ "$current" = '=' ]; then before+=('='); current=; fi
)sh" + std::string(look_back) +
         R"sh(  COMPREPLY=()
  local choices=
  for word in $kind; do
    case $word in
      @recipes) _prun_add -f -X '!*.toml'; _prun_add -d ;;
      @folders) _prun_add -d ;;
      @files) _prun_add -f ;;
      @keys) _prun_add -S = -W "$(_prun_keys)"; compopt -o nospace 2>/dev/null ;;
      *) choices="$choices $prefix$word" ;;
    esac
  done
  case $kind in *@recipes* | *@f*) compopt -o filenames 2>/dev/null ;; esac
  if [ -n "$choices" ]; then _prun_add -W "$choices"; fi
}
complete -F _prun prun
)sh";
}

std::string zsh_script(const Table& table) {
  return "#compdef prun\n# zsh completion of prun, written by: prun completion zsh\n\n" + tables(table) +
         R"sh(_prun() {
  setopt localoptions shwordsplit
  local current=${words[CURRENT]} command= pending= kind= word last= prefix= place=0 verbs=')sh" +
         first_words(table) + R"sh('
  local -a before=("${(@)words[2,CURRENT-1]}")
)sh" + std::string(look_back) +
         R"sh(  local -a choices
  for word in $kind; do
    case $word in
      @recipes) _files -g '*.toml' ;;
      @folders) _files -/ ;;
      @files) _files ;;
      @keys) compadd -S = -- $(_prun_keys) ;;
      *) choices+=("$prefix$word") ;;
    esac
  done
  if [ ${#choices} -gt 0 ]; then compadd -- "${choices[@]}"; fi
}
if [ "${funcstack[1]}" = _prun ]; then _prun "$@"; else compdef _prun prun; fi
)sh";
}

// `shell` is "bash" or "zsh"; throws bad_input for another.
std::string completion_script(std::string_view shell, const Completed& completed) {
  const Table table(completed);
  if (shell == "bash") return bash_script(table);
  if (shell == "zsh") return zsh_script(table);
  throw_error(ErrorCode::bad_input, "prun completion knows bash and zsh, not ", in_quotes(shell));
}

// ------------------------------------------------------------------- completion verb

int completion_command(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  Completed completed{recipe::settable_keys(plugins.catalog()), {}};
  for (const PluginNote& note : benched_strategies(plugins.places()))
    completed.strategies.push_back(note.name);
  const std::string script = completion_script(arguments.words[0], completed);
  std::fputs(script.c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> completion_verb() {
  return {{"completion",
           "bash|zsh",
           "a script that completes these commands: source <(prun completion bash)",
           {},
           completion_command}};
}

}  // namespace prun
