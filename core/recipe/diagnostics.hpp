// Problems in a recipe: where they are, and how they are shown.
//
//   recipe.toml:14:1: error: unknown key 'learning_rate' in [optimizer]; did you mean 'lr'?
//     14 | learning_rate = 3e-4
//        | ^~~~~~~~~~~~~
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prun::recipe {

// ------------------------------------------------------------------- diagnostics

// Holds a text that values come from: a file, or one `--set a.b=c` (whose name is also its text).
struct Source {
  enum class Kind : std::uint8_t { file, override_, ours };  // ours: written by prun itself

  std::string name;
  std::string text;
  std::size_t order = 0;  // order of problems: the recipe, what it includes, --set
  Kind kind = Kind::file;
};

// Names a place. Lines and columns count from 1, columns in code points. Line 0 means the source as a whole;
// values at their default have no source.
struct Location {
  std::shared_ptr<const Source> source;
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  std::uint32_t length = 1;  // length in code points; cut at the end of the line
};

// Returns a text such as "recipe.toml:14", "--set optimizer.lr=1" or "default".
std::string describe(const Location& at);

struct Problem {
  Location at;
  std::string message;
};

// Renders head, source line and caret, then the message's further lines; it ends without a newline.
std::string render(const Problem& problem);

// Collects problems, so that the user sees all of them at once.
class Diagnostics {
 public:
  void add(Problem problem) { problems_.push_back(std::move(problem)); }
  void add(Location at, std::string message) { add(Problem{std::move(at), std::move(message)}); }

  bool empty() const { return problems_.empty(); }
  std::size_t size() const { return problems_.size(); }
  // Returns all problems in source order; a hopeless recipe is cut after the first fifty.
  std::string text() const;
  // Throws bad_input with text() as its message.
  void throw_if_any() const;

  static constexpr std::size_t max_shown = 50;

 private:
  std::vector<Problem> problems_;
};

// ------------------------------------------------------------------- suggest
// Suggests what an unknown name in a recipe was probably meant to be.

// Holds the keys that one section of this recipe accepts.
struct KeySet {
  std::string section;  // name such as "optimizer", whatever the index of a list's item
  std::string label;    // label such as "[optimizer]", "[[strategy]] 'zero'"
  std::vector<std::string> keys;
};

// Returns the end of a message about an undeclared key: "; did you mean 'lr'?", "; it belongs in
// [optimizer]", or empty. `here` is an index into `sections`, or their number for the top level.
std::string suggest_key(std::string_view key, std::size_t here, std::span<const KeySet> sections);

// Returns the key of this section that has this alias, or an empty text.
std::string key_by_alias(std::string_view name, const KeySet& section);

// Suggests the name of a section, as in "; did you mean [model]?".
std::string suggest_section(std::string_view name, std::span<const KeySet> sections);

// Suggests a plugin, or lists the known ones.
std::string suggest_plugin(std::string_view name, std::span<const std::string> known);

}  // namespace prun::recipe
