// Parses the command line: a verb, the words behind it, and options that may be anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace prun {

struct Arguments {
  std::vector<std::string> all;    // as given, the program's name first
  std::string verb;                // is "run" where only a recipe is given
  std::vector<std::string> words;  // those behind the verb
  std::vector<std::string> sets;   // such as --set a.b=c
  std::vector<std::filesystem::path> plugin_paths;
  std::set<std::string> flags;                // such as "--json", "--program"
  std::map<std::string, std::string> values;  // map "--steps" to the word behind it

  bool has(const std::string& flag) const { return flags.count(flag) != 0; }
  // Returns the number given with an option, `least` or more, or `fallback`.
  std::int64_t number(const std::string& option, std::int64_t fallback, std::int64_t least = 1) const;
  // Returns a size such as 5GB given with an option, or `fallback`.
  std::int64_t bytes(const std::string& option, std::int64_t fallback) const;
  double real(const std::string& option, double fallback, double least, double most) const;
  // Returns the file given with an option.
  std::optional<std::filesystem::path> path(const std::string& option) const;
};

// Returns a number within these limits; throws bad_input where the text is no such number.
double to_number(const std::string& option, const std::string& text, double least, double most);

// Throws bad_input for words and options that the command does not have, and without those that it needs.
Arguments parse_arguments(int argc, char** argv);

}  // namespace prun
