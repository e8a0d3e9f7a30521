// Conversations as the text that a model reads, by a template such as chat templates of Hugging Face are: a
// bounded part of Jinja, evaluated as transformers does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/functions.hpp"
#include "chat/syntax.hpp"

namespace prun::chat {

// Names bytes of a text, from the first to one past the last.
struct Span {
  std::size_t begin = 0, end = 0;
};

struct Rendered {
  std::string text;
  std::vector<Span> generated;  // what stands in {% generation %}
};

class Template {
 public:
  // `name` is its own in messages. Throws bad_input for what is not in the part of Jinja that prun has.
  Template(std::string_view text, std::string name);

  // `variables` are messages, add_generation_prompt, bos_token and so on. Throws bad_input where the template
  // raises an exception, or asks for what is not there: the day too, where it is not given.
  Rendered render(const Dict& variables, const std::optional<Day>& today = {}) const;
  // Says whether it says itself what the assistant writes.
  bool marks_generation() const { return marks_generation_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Block block_;
  bool marks_generation_ = false;
};

}  // namespace prun::chat
