// Splits a template into words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace prun::chat {

enum class WordKind : std::uint8_t {
  text,
  begin_output,
  end_output,
  begin_block,
  end_block,
  name,
  number,
  fraction,
  string,
  sign,
  end
};

struct Word {
  WordKind kind = WordKind::end;
  int line = 0;
  std::string text;
};

// White space is taken off as Jinja does with trim_blocks and lstrip_blocks, as chat templates are written.
std::vector<Word> words_of_template(std::string_view text, const std::string& name);

}  // namespace prun::chat
