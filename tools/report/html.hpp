// Writes HTML, element by element. Text and attributes stay text and attributes, whatever they hold: a log, a
// recipe or a name cannot become markup.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prun {

// Writes letters that HTML would take for markup as references, and replaces those that a reader could not
// see, or that would reverse the order of letters.
std::string escaped(std::string_view text);

// Returns a text of JSON as the content of a script element: no '<' is left that could end it.
std::string escaped_json(std::string json);

class Html {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  Html& open(std::string_view tag, Attributes attributes = {});
  Html& close();
  Html& text(std::string_view text);
  // Adds an element with a text in it, or an empty one.
  Html& element(std::string_view tag, std::string_view text, Attributes attributes = {});
  Html& empty(std::string_view tag, Attributes attributes = {});
  // Adds parts that were built in the same way.
  Html& add(const Html& part);
  // Adds markup that is no user's text: files that the build embeds in the program, and escaped_json().
  Html& trusted(std::string_view markup);

  std::string take();

 private:
  void begin(std::string_view tag, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace prun
