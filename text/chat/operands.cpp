// Parses what operators stand between: a literal, a name, a list, a dict or what is in parentheses; and what
// binds to that: attributes, items, calls, filters, tests.
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

ExpressionPointer read_list(WordReader& words) {
  auto list = make_expression(words, ExpressionKind::list);
  words.take();
  while (!words.is_sign("]")) {
    add_part(*list, words, read_expression(words));
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign("]");
  return list;
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

ExpressionPointer read_single(WordReader& words) {
  const Word word = words.now();
  if (word.kind == WordKind::string) {
    auto text = make_expression(words, ExpressionKind::literal);
    std::string all;
    while (words.now().kind == WordKind::string) all += words.take().text;
    text->value = Value(all);
    return text;
  }
  if (word.kind == WordKind::number) {
    if (word.text.size() > 15) words.refuse("the number " + word.text + " is too large");
    return literal(words, Value(static_cast<std::int64_t>(std::stoll(word.text))));
  }
  if (word.kind == WordKind::name) return read_name(words, word.text);
  if (words.pass_sign("(")) {
    ExpressionPointer inner = read_expression(words);
    if (words.is_sign(",")) words.refuse("a tuple is not something that prun has in templates; write a list");
    words.expect_sign(")");
    return inner;
  }
  if (words.is_sign("[")) return read_list(words);
  if (words.is_sign("{")) return read_dict(words);
  words.refuse("'" + word.text + "' is not expected here");
}

void read_arguments(WordReader& words, Expression& call) {
  words.expect_sign("(");
  while (!words.is_sign(")")) {
    if (words.now().kind == WordKind::name && words.next().kind == WordKind::sign &&
        words.next().text == "=") {
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
  const std::string name = words.now().kind == WordKind::number ? words.take().text : words.take_name();
  if (words.is_sign("(")) {
    auto method = make_expression(words, ExpressionKind::method, name);
    add_part(*method, words, std::move(of));
    read_arguments(words, *method);
    return method;
  }
  auto key = make_expression(words, ExpressionKind::literal);
  key->value = Value(name);
  return joined(words, ExpressionKind::item, "", std::move(of), ExpressionPointer(std::move(key)));
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

// Attributes, items, calls, filters and tests bind from left to right.
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
    } else if (words.pass_sign("|")) {
      auto filter = make_expression(words, ExpressionKind::filter, words.take_name());
      add_part(*filter, words, std::move(of));
      if (words.is_sign("(")) read_arguments(words, *filter);
      of = std::move(filter);
    } else if (words.pass_name("is")) {
      const bool negated = words.pass_name("not");
      of = joined(words, ExpressionKind::test, words.take_name(), std::move(of));
      if (words.is_sign("("))
        words.refuse("a test with arguments is not something that prun has in templates");
      if (negated) of = joined(words, ExpressionKind::unary, "not", std::move(of));
    } else {
      return of;
    }
  }
}

}  // namespace

ExpressionPointer read_operand(WordReader& words) { return read_tail(words, read_single(words)); }

}  // namespace prun::chat
