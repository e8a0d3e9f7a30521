// Jinja's tests, and comparisons.
#include "chat/helpers.hpp"
#include "chat/text_methods.hpp"

namespace prun::chat {
namespace {

bool contains(const Value& in, const Value& what) {
  if (const auto* const text = in.as<std::string>()) return text->find(need_text(what, "in")) != text->npos;
  if (const Dict* const dict = in.dict())
    return what.as<std::string>() && dict->find(*what.as<std::string>());
  if (const List* const list = in.list())
    return std::any_of(list->begin(), list->end(), [&](const Value& item) { return item.equals(what); });
  if (in.is_undefined()) return false;
  trouble(std::string("in is asked of ") + in.kind());
}

int order_of(const Value& left, const Value& right, const std::string& sign) {
  if (left.as<std::string>() && right.as<std::string>()) {
    const int order = left.as<std::string>()->compare(*right.as<std::string>());
    return (order > 0) - (order < 0);
  }
  if (left.as<double>() || right.as<double>()) {
    const std::optional<double> a = any_number(left), b = any_number(right);
    if (!a || !b) trouble(sign + " takes numbers, not " + (a ? right : left).kind());
    return (*a > *b) - (*a < *b);
  }
  const std::int64_t a = need_number(left, sign), b = need_number(right, sign);
  return (a > b) - (a < b);
}

// Tests of what a value is; nothing where there is none of this name.
std::optional<bool> is_of_kind(const std::string& name, const Value& value) {
  const bool whole = value.as<std::int64_t>(), flag = value.as<bool>(), text = value.as<std::string>();
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return text;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "boolean") return flag;
  if (name == "true" || name == "false") return flag && value.is_true() == (name == "true");
  if (name == "number") return whole || flag || value.as<double>();
  if (name == "integer") return whole;
  if (name == "float") return value.as<double>() != nullptr;
  if (name == "callable") return value.is_function();
  if (name == "iterable" || name == "sequence")
    return value.list() || value.dict() || text || value.is_undefined();
  if (name == "odd" || name == "even") return (need_number(value, name) % 2 == 0) == (name == "even");
  if (name == "lower") return text_of(value) == in_lower_case(text_of(value));
  if (name == "upper") return text_of(value) == in_upper_case(text_of(value));
  return {};
}

std::string sign_of_test(const std::string& name) {
  for (const auto& [test, sign] : {std::pair("equalto", "=="),
                                   {"eq", "=="},
                                   {"ne", "!="},
                                   {"lt", "<"},
                                   {"lessthan", "<"},
                                   {"le", "<="},
                                   {"gt", ">"},
                                   {"greaterthan", ">"},
                                   {"ge", ">="},
                                   {"in", "in"},
                                   {"==", "=="},
                                   {"!=", "!="},
                                   {"<", "<"},
                                   {"<=", "<="},
                                   {">", ">"},
                                   {">=", ">="}})
    if (name == test) return sign;
  return "";
}

// Two names for one thing; of texts and large numbers nobody knows.
bool is_same(const Value& a, const Value& b) {
  const bool small = (a.is_none() || a.as<bool>()) && (b.is_none() || b.as<bool>());
  if (!small) not_there(std::string("the test 'sameas' of ") + a.kind());
  return a.is_none() == b.is_none() && a.is_true() == b.is_true();
}

}  // namespace

bool passes_test(const std::string& name, const Value& value, std::span<const Value> arguments) {
  if (arguments.empty())
    if (const std::optional<bool> is = is_of_kind(name, value)) return *is;
  if (arguments.size() == 1) {
    if (const std::string sign = sign_of_test(name); !sign.empty())
      return compares(sign, value, arguments[0]);
    if (name == "sameas") return is_same(value, arguments[0]);
    if (name == "divisibleby" && need_number(arguments[0], name) != 0)
      return need_number(value, name) % need_number(arguments[0], name) == 0;
  }
  not_there("the test '" + name + "' with " + std::to_string(arguments.size()) + " arguments");
}

bool compares(const std::string& sign, const Value& left, const Value& right) {
  if (sign == "==") return left.equals(right);
  if (sign == "!=") return !left.equals(right);
  if (sign == "in") return contains(right, left);
  if (sign == "not in") return !contains(right, left);
  const int order = order_of(left, right, sign);
  return sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
}

}  // namespace prun::chat
