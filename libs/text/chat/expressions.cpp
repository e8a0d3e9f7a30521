// Binds as Jinja does: conditional, or, and, not, comparisons, + and -, ~, * and others, **, signs.
#include "chat/expressions.hpp"

#include <algorithm>
#include <initializer_list>

namespace prun::chat {
namespace {

template <class Below>
ExpressionPointer read_row(WordReader& words, std::initializer_list<const char*> signs, Below&& below) {
  ExpressionPointer left = below();
  for (;;) {
    const auto sign =
        std::find_if(signs.begin(), signs.end(), [&](const char* one) { return words.is_sign(one); });
    if (sign == signs.end()) return left;
    words.take();
    left = joined(words, ExpressionKind::binary, *sign, std::move(left), below());
  }
}

ExpressionPointer read_product(WordReader& words) {
  return read_row(words, {"*", "//", "%", "/"},
                  [&] { return read_row(words, {"**"}, [&] { return read_operand(words); }); });
}

ExpressionPointer read_sum(WordReader& words) {
  return read_row(words, {"+", "-"},
                  [&] { return read_row(words, {"~"}, [&] { return read_product(words); }); });
}

std::string take_comparison(WordReader& words) {
  for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
    if (words.pass_sign(sign)) return sign;
  if (words.pass_name("in")) return "in";
  if (!words.is_name("not") || words.next().text != "in") return "";
  words.take();
  words.take();
  return "not in";
}

ExpressionPointer read_comparison(WordReader& words) {
  ExpressionPointer left = read_sum(words);
  std::string sign = take_comparison(words);
  if (sign.empty()) return left;
  auto made = make_expression(words, ExpressionKind::comparison);
  add_part(*made, words, std::move(left));
  for (; !sign.empty(); sign = take_comparison(words)) {
    made->signs.push_back(sign);
    add_part(*made, words, read_sum(words));
  }
  return made;
}

ExpressionPointer read_not(WordReader& words) {
  const WordReader::Deeper deeper(words);
  if (words.pass_name("not")) return joined(words, ExpressionKind::unary, "not", read_not(words));
  return read_comparison(words);
}

ExpressionPointer read_and(WordReader& words) {
  ExpressionPointer left = read_not(words);
  while (words.pass_name("and"))
    left = joined(words, ExpressionKind::binary, "and", std::move(left), read_not(words));
  return left;
}

}  // namespace

ExpressionPointer read_expression(WordReader& words) {
  const WordReader::Deeper deeper(words);
  ExpressionPointer value = read_or(words);
  while (words.pass_name("if")) {
    ExpressionPointer condition = read_or(words), otherwise;
    if (words.pass_name("else")) otherwise = read_expression(words);
    value = joined(words, ExpressionKind::conditional, "", std::move(value), std::move(condition),
                   std::move(otherwise));
  }
  return value;
}

ExpressionPointer read_or(WordReader& words) {
  ExpressionPointer left = read_and(words);
  while (words.pass_name("or"))
    left = joined(words, ExpressionKind::binary, "or", std::move(left), read_and(words));
  return left;
}

}  // namespace prun::chat
