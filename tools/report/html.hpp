// Writes HTML, element by element. What comes in as text or attribute goes out as text or attribute, whatever
// it holds: a log, a recipe or a name cannot become markup.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prun {

// Writes what HTML would take for markup as references, and replaces what a reader could not see, or that
// would reverse the order of letters.
std::string escaped(std::string_view text);

// A text of JSON as the content of a script element: no '<' is left that could end it.
std::string escaped_json(std::string json);

class Html {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  Html& open(std::string_view tag, Attributes attributes = {});
  Html& close();
  Html& text(std::string_view text);
  // Adds an element with a text in it, or without anything.
  Html& element(std::string_view tag, std::string_view text, Attributes attributes = {});
  Html& empty(std::string_view tag, Attributes attributes = {});
  // Adds parts that were built likewise.
  Html& add(const Html& part);
  // Adds markup that is no user's text: what the build embeds in the program, and escaped_json().
  Html& trusted(std::string_view markup);

  std::string take();

 private:
  void begin(std::string_view tag, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace prun
