#include "convert/word_reader.hpp"

#include <utility>

#include "base/text.hpp"

namespace prun::convert {
namespace {

constexpr std::size_t most_words = 100'000;

}  // namespace

void WordReader::read_quoted(std::string& word) {
  const char quote = text_.take();
  while (!text_.at_end() && text_.now() != quote) {
    if (quote == '"' && text_.starts("\\\n"))
      text_.skip(2);
    else if (quote == '"' && text_.now() == '\\' && text_.rest().size() > 1) {
      text_.skip();
      word += text_.take();
    } else if (quote == '"' && (text_.now() == '$' || text_.now() == '`'))
      word += join(expansions_.read(), " ");
    else
      word += text_.take();
  }
  if (text_.at_end()) text_.fail("a quote is not closed");
  text_.skip();
}

// The last of the words that it expands to goes on. Returns whether there are any.
bool WordReader::read_expanded(Words& done, std::string& word) {
  const Words parts = words_in(join(expansions_.read(), " "));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) done.push_back(std::exchange(word, {}));
    word += parts[i];
  }
  return !parts.empty();
}

Words WordReader::read() {
  Words done;
  std::string word;
  bool quoted = false, any = false;
  while (!text_.ends_command() && !blank(text_.now()) && text_.now() != '(') {
    if (text_.continues()) break;
    if (const std::optional<Words> elements = word.empty() ? expansions_.read_elements() : std::nullopt) {
      done.insert(done.end(), elements->begin(), elements->end());
    } else if (text_.now() == '"' || text_.now() == '\'') {
      read_quoted(word);
      quoted = any = true;
    } else if (text_.now() == '$' || text_.now() == '`') {
      any |= read_expanded(done, word);
    } else {
      if (text_.now() == '\\') text_.skip();
      if (!text_.at_end()) word += text_.take();
      any = true;
    }
  }
  if (any && (quoted || !word.empty())) done.push_back(word);
  if ((count_ += done.size()) > most_words)
    text_.fail(detail::concat("it has more than ", most_words, " words"));
  return done;
}

}  // namespace prun::convert
