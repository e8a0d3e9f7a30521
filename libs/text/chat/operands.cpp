// Parses what operators stand between: a literal, a name, a list, a dict or what is in parentheses; and what
// binds to that: attributes, items, calls, filters, tests.
#include <charconv>

#include "chat/expressions.hpp"

namespace prun::chat {
namespace {

ExpressionPointer literal(WordReader& words, Value value) {
  auto made = make_expression(words, ExpressionKind::literal);
  made->value = std::move(value);
  words.take();
  return made;
}

ExpressionPointer read_name(WordReader& words, const std::string& name) {
  if (name == "true" || name == "True") return literal(words, Value(true));
  if (name == "false" || name == "False") return literal(words, Value(false));
  if (name == "none" || name == "None") return literal(words, Value(nullptr));
  auto made = make_expression(words, ExpressionKind::name, name);
  words.take();
  return made;
}

// Reads a row of expressions up to what ends it, which it leaves.
void read_parts(WordReader& words, Expression& list, std::string_view end) {
  while (!words.is_sign(end)) {
    add_part(list, words, read_expression(words));
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign(end);
}

ExpressionPointer read_list(WordReader& words) {
  auto list = make_expression(words, ExpressionKind::list);
  words.take();
  read_parts(words, *list, "]");
  return list;
}

ExpressionPointer read_parentheses(WordReader& words) {
  auto tuple = make_expression(words, ExpressionKind::tuple);
  words.take();
  if (words.pass_sign(")")) return tuple;
  ExpressionPointer inner = read_expression(words);
  if (words.pass_sign(")")) return inner;
  words.expect_sign(",");
  add_part(*tuple, words, std::move(inner));
  read_parts(words, *tuple, ")");
  return tuple;
}

ExpressionPointer read_dict(WordReader& words) {
  auto dict = make_expression(words, ExpressionKind::dict);
  words.take();
  while (!words.is_sign("}")) {
    add_part(*dict, words, read_expression(words));
    words.expect_sign(":");
    add_part(*dict, words, read_expression(words));
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign("}");
  return dict;
}

ExpressionPointer read_number(WordReader& words) {
  const Word word = words.now();
  if (word.text.size() > 15) words.refuse("the number " + word.text + " is too long");
  if (word.kind == WordKind::number)
    return literal(words, Value(static_cast<std::int64_t>(std::stoll(word.text))));
  double number = 0;
  std::from_chars(word.text.data(), word.text.data() + word.text.size(), number);
  return literal(words, Value(number));
}

ExpressionPointer read_single(WordReader& words) {
  const Word& word = words.now();
  if (word.kind == WordKind::string) {
    auto text = make_expression(words, ExpressionKind::literal);
    std::string all;
    while (words.now().kind == WordKind::string) all += words.take().text;
    text->value = Value(all);
    return text;
  }
  if (word.kind == WordKind::number || word.kind == WordKind::fraction) return read_number(words);
  if (word.kind == WordKind::name) return read_name(words, word.text);
  if (words.is_sign("(")) return read_parentheses(words);
  if (words.is_sign("[")) return read_list(words);
  if (words.is_sign("{")) return read_dict(words);
  words.refuse("'" + word.text + "' is not expected here");
}

void read_arguments(WordReader& words, Expression& call) {
  words.expect_sign("(");
  while (!words.is_sign(")")) {
    if (words.now().kind == WordKind::name && words.is_next_sign("=")) {
      std::string name = words.take_name();
      words.take();
      call.named.emplace_back(std::move(name), placed_in(call, words, read_expression(words)));
    } else {
      add_part(call, words, read_expression(words));
    }
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign(")");
}

ExpressionPointer read_attribute(WordReader& words, ExpressionPointer of) {
  if (words.now().kind == WordKind::number)
    return joined(words, ExpressionKind::item, "", std::move(of), read_number(words));
  const std::string name = words.take_name();
  const bool is_call = words.is_sign("(");
  auto made = make_expression(words, is_call ? ExpressionKind::method : ExpressionKind::attribute, name);
  add_part(*made, words, std::move(of));
  if (is_call) read_arguments(words, *made);
  return made;
}

ExpressionPointer read_item(WordReader& words, ExpressionPointer of) {
  words.take();
  ExpressionPointer first = words.is_sign(":") ? nullptr : read_expression(words);
  if (words.pass_sign("]")) return joined(words, ExpressionKind::item, "", std::move(of), std::move(first));
  ExpressionPointer last, step;
  words.expect_sign(":");
  if (!words.is_sign(":") && !words.is_sign("]")) last = read_expression(words);
  if (words.pass_sign(":") && !words.is_sign("]")) step = read_expression(words);
  words.expect_sign("]");
  return joined(words, ExpressionKind::slice, "", std::move(of), std::move(first), std::move(last),
                std::move(step));
}

// Attributes, items and calls bind from left to right.
ExpressionPointer read_tail(WordReader& words, ExpressionPointer of) {
  for (;;) {
    if (words.pass_sign(".")) {
      of = read_attribute(words, std::move(of));
    } else if (words.is_sign("[")) {
      of = read_item(words, std::move(of));
    } else if (words.is_sign("(")) {
      if (of->kind != ExpressionKind::name)
        words.refuse("a call of what is no name is not something that prun has in templates");
      auto call = make_expression(words, ExpressionKind::call, of->text);
      read_arguments(words, *call);
      of = std::move(call);
    } else {
      return of;
    }
  }
}

// Reads one with signs in front, without filters.
ExpressionPointer read_signed(WordReader& words) {
  const WordReader::Deeper deeper(words);
  for (const char* sign : {"-", "+"})
    if (words.pass_sign(sign))
      return read_tail(words, joined(words, ExpressionKind::unary, sign, read_signed(words)));
  return read_tail(words, read_single(words));
}

// Says whether an argument stands behind a test's name without parentheses.
bool begins_argument(const WordReader& words) {
  const Word& word = words.now();
  if (word.kind == WordKind::name)
    return word.text != "else" && word.text != "or" && word.text != "and" && word.text != "if" &&
           word.text != "is" && word.text != "in" && word.text != "not";
  return word.kind == WordKind::string || word.kind == WordKind::number || word.kind == WordKind::fraction ||
         words.is_sign("[") || words.is_sign("{");
}

ExpressionPointer read_test(WordReader& words, ExpressionPointer of) {
  const bool negated = words.pass_name("not");
  auto test = make_expression(words, ExpressionKind::test, words.take_name());
  add_part(*test, words, std::move(of));
  if (words.is_sign("("))
    read_arguments(words, *test);
  else if (begins_argument(words))
    add_part(*test, words, read_tail(words, read_single(words)));
  if (!negated) return test;
  return joined(words, ExpressionKind::unary, "not", ExpressionPointer(std::move(test)));
}

}  // namespace

// Filters and tests bind to what its signs have been put in front of.
ExpressionPointer read_operand(WordReader& words) {
  ExpressionPointer of = read_signed(words);
  for (;;) {
    if (words.pass_sign("|")) {
      auto filter = make_expression(words, ExpressionKind::filter, words.take_name());
      add_part(*filter, words, std::move(of));
      if (words.is_sign("(")) read_arguments(words, *filter);
      of = std::move(filter);
    } else if (words.pass_name("is")) {
      of = read_test(words, std::move(of));
    } else {
      return of;
    }
  }
}

}  // namespace prun::chat
