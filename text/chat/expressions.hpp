// Parses the expressions of a template.
#pragma once

#include "chat/syntax.hpp"
#include "chat/word_reader.hpp"

namespace prun::chat {

ExpressionPointer read_expression(WordReader& words);
// Reads one without `if`, which means something else behind what a loop goes through.
ExpressionPointer read_or(WordReader& words);
// Reads what operators stand between.
ExpressionPointer read_operand(WordReader& words);

// Makes one at the word at hand.
inline std::unique_ptr<Expression> make_expression(const WordReader& words, ExpressionKind kind,
                                                   std::string text = {}) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = words.now().line;
  made->text = std::move(text);
  return made;
}
template <class... Parts>
ExpressionPointer joined(const WordReader& words, ExpressionKind kind, std::string text, Parts... parts) {
  auto made = make_expression(words, kind, std::move(text));
  (made->parts.push_back(std::move(parts)), ...);
  return made;
}

}  // namespace prun::chat
