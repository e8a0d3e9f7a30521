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
// Rows of operators nest as parentheses do: an expression that evaluation cannot follow down is refused.
inline ExpressionPointer placed_in(Expression& outer, const WordReader& words, ExpressionPointer part) {
  constexpr int deepest = 500;
  if (part && (outer.depth = std::max(outer.depth, part->depth + 1)) > deepest)
    words.refuse("it is nested too deeply");
  return part;
}
inline void add_part(Expression& outer, const WordReader& words, ExpressionPointer part) {
  outer.parts.push_back(placed_in(outer, words, std::move(part)));
}
template <class... Parts>
ExpressionPointer joined(const WordReader& words, ExpressionKind kind, std::string text, Parts... parts) {
  auto made = make_expression(words, kind, std::move(text));
  (add_part(*made, words, std::move(parts)), ...);
  return made;
}

}  // namespace prun::chat
