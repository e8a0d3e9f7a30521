#include "chat/evaluation.hpp"

namespace prun::chat {

Evaluation::Operands::Operands(Evaluation& by, const Expression& of) : held(by.steps_, of.line) {
  for (const ExpressionPointer& part : of.parts)
    held.add(values.emplace_back(part ? by.of(*part) : Value(nullptr)));
  for (const auto& [name, part] : of.named) held.add(named.emplace_back(name, by.of(*part)).second);
}

Value Evaluation::of(const Expression& expression) {
  constexpr int deepest = 1000;
  Value value = steps_.at_line(expression.line, [&] { return value_of(expression); });
  if (const auto* const text = value.as<std::string>()) steps_.count_bytes(text->size());
  if (value.extent().depth > deepest) steps_.refuse(expression.line, "a list is nested too deeply");
  return value;
}

Value Evaluation::value_of(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::literal: return expression.value;
    case ExpressionKind::name: return named_value(expression.text);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
      return Value::of(Operands(*this, expression).values, expression.kind == ExpressionKind::tuple);
    case ExpressionKind::dict: return dict_of(expression);
    case ExpressionKind::item: return item_of(of(*expression.parts[0]), of(*expression.parts[1]));
    case ExpressionKind::attribute: return attribute_of(of(*expression.parts[0]), expression.text);
    case ExpressionKind::slice: return slice_of(expression);
    case ExpressionKind::call:
    case ExpressionKind::method:
    case ExpressionKind::filter:
    case ExpressionKind::test: {
      Value made = made_of(expression);
      steps_.count_bytes(made.extent().bytes);
      return made;
    }
    case ExpressionKind::unary: return unary(expression);
    case ExpressionKind::binary: return binary(expression);
    case ExpressionKind::comparison: return comparison(expression);
    case ExpressionKind::conditional: break;
  }
  if (of(*expression.parts[1]).is_true()) return of(*expression.parts[0]);
  return expression.parts[2] ? of(*expression.parts[2]) : Value();
}

// Evaluates the operands of a call, method, filter or test, and then calls it by its name.
Value Evaluation::made_of(const Expression& expression) {
  if (expression.kind == ExpressionKind::call) return call(expression);
  const Operands all(*this, expression);
  const std::span<const Value> rest = std::span(all.values).subspan(1);
  if (expression.kind == ExpressionKind::method)
    return call_method(expression.text, all.values[0], rest, all.named);
  if (expression.kind == ExpressionKind::filter)
    return call_filter(expression.text, all.values[0], rest, all.named);
  if (!all.named.empty())
    throw Trouble{"a test is given '" + all.named[0].first + "', which prun does not have"};
  return {passes_test(expression.text, all.values[0], rest)};
}

// Returns a value for the names of functions too, since templates ask whether these are defined.
Value Evaluation::named_value(const std::string& name) const {
  if (const Value* const found = scopes_.find(name)) return *found;
  for (const char* function : {"raise_exception", "strftime_now", "namespace", "range", "dict"})
    if (name == function) return {Value::Method{}};
  for (const char* special : {"varargs", "kwargs", "caller", "cycler", "joiner", "lipsum", "self"})
    if (name == special) throw Trouble{"'" + name + "' is not something that prun has in templates"};
  return {Undefined{name}};
}

Value Evaluation::call(const Expression& expression) {
  const Operands all(*this, expression);
  if (const Value* const found = scopes_.find(expression.text)) {
    const auto* const macro = found->as<Value::Macro>();
    if (!macro) throw Trouble{"'" + expression.text + "' is " + found->kind() + ", and is called"};
    return macros_.call_macro(*macro->statement, expression.line, all.values, all.named);
  }
  if (expression.text == "namespace") return make_namespace(expression.line, all);
  return call_function(expression.text, all.values, all.named, today_);
}

Value Evaluation::make_namespace(int line, const Operands& all) {
  Dict& names = namespaces_.emplace_back();
  for (const Value& given : all.values) {
    if (!given.dict()) throw Trouble{std::string("namespace is given ") + given.kind()};
    for (const auto& [name, value] : given.dict()->entries()) set_held(steps_, line, names, name, value);
  }
  for (const auto& [name, value] : all.named) set_held(steps_, line, names, name, value);
  return {Value::Namespace{&names}};
}

Value Evaluation::dict_of(const Expression& expression) {
  const Operands all(*this, expression);
  Dict dict;
  for (std::size_t i = 0; i < all.values.size(); i += 2) {
    const auto* const key = all.values[i].as<std::string>();
    if (!key) throw Trouble{std::string("the key of a dict is ") + all.values[i].kind() + ", not a text"};
    dict.set(*key, all.values[i + 1]);
  }
  return Value::of(std::move(dict));
}

std::optional<std::int64_t> Evaluation::bound(const ExpressionPointer& part) {
  if (!part) return {};
  const Value value = of(*part);
  if (value.is_none()) return {};
  const auto* const number = value.as<std::int64_t>();
  if (!number) throw Trouble{"a slice takes whole numbers"};
  return *number;
}

Value Evaluation::slice_of(const Expression& expression) {
  const Value whole = of(*expression.parts[0]);
  Held held(steps_, expression.line);
  held.add(whole);
  const std::optional<std::int64_t> first = bound(expression.parts[1]), last = bound(expression.parts[2]),
                                    step = bound(expression.parts[3]);
  return sliced(whole, first, last, step);
}

Value Evaluation::unary(const Expression& expression) {
  const Value value = of(*expression.parts[0]);
  if (expression.text == "not") return {!value.is_true()};
  if (const auto* const number = value.as<double>()) return {expression.text == "-" ? -*number : *number};
  return apply_binary(expression.text, Value(std::int64_t{0}), value);
}

Value Evaluation::binary(const Expression& expression) {
  const auto is_safe = [](const ExpressionPointer& part) {
    return part->kind == ExpressionKind::filter && part->text == "safe";
  };
  if (expression.text == "+" && (is_safe(expression.parts[0]) || is_safe(expression.parts[1])))
    throw Trouble{
        "'+' of what is safe, which writes letters of HTML otherwise, is not something that prun has in "
        "templates; write '~'"};
  Value left = of(*expression.parts[0]);
  if (expression.text == "and" && !left.is_true()) return left;
  if (expression.text == "or" && left.is_true()) return left;
  Held held(steps_, expression.line);
  held.add(left);
  Value right = of(*expression.parts[1]);
  if (expression.text == "and" || expression.text == "or") return right;
  held.add(right);
  return apply_binary(expression.text, left, right);
}

// Compares neighbours in `a < b < c` from left to right, and stops at the first comparison that is false.
Value Evaluation::comparison(const Expression& expression) {
  Value left = of(*expression.parts[0]);
  for (std::size_t i = 0; i < expression.signs.size(); ++i) {
    Held held(steps_, expression.line);
    held.add(left);
    Value right = of(*expression.parts[i + 1]);
    held.add(right);
    if (!compares(expression.signs[i], left, right)) return {false};
    left = std::move(right);
  }
  return {true};
}

}  // namespace prun::chat
