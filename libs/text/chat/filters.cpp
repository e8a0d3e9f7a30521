// Jinja's filters.
#include <charconv>

#include "chat/functions.hpp"

namespace prun::chat {
namespace {

// ------------------------------------------------------------------- filters

// Holds a filter's arguments besides its value: by place, or by name.
class Given {
 public:
  Given(const std::string& filter, std::span<const Value> arguments, const Named& named)
      : filter_(filter), arguments_(arguments), named_(named) {}

  std::span<const Value> all() const { return arguments_; }
  const Named& named() const { return named_; }
  // Takes only these, in this order.
  void check(std::initializer_list<std::string_view> names) const {
    at_most(arguments_, names.size(), filter_);
    for (const auto& [name, value] : named_)
      if (std::find(names.begin(), names.end(), name) == names.end())
        not_there("'" + name + "' of the filter '" + filter_ + "'");
  }
  const Value* find(std::size_t place, std::string_view name) const {
    for (const auto& [given, value] : named_)
      if (given == name) return &value;
    return place < arguments_.size() ? &arguments_[place] : nullptr;
  }
  bool flag(std::size_t place, std::string_view name) const {
    const Value* const value = find(place, name);
    return value && value->is_true();
  }

 private:
  const std::string& filter_;
  std::span<const Value> arguments_;
  const Named& named_;
};

// Returns what a path such as a.b.0 names in a value.
Value at_path(Value of, const Value& path) {
  if (!path.as<std::string>()) return item_of(of, path);
  for (const std::string_view part : split(*path.as<std::string>(), '.')) {
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number && part.size() < 10)
      of = item_of(of, Value(std::int64_t{std::stoll(std::string(part))}));
    else
      of = item_of(of, Value(std::string(part)));
  }
  return of;
}

// map(attribute='name', default=...), or map('filter', its arguments).
Value mapped(const Value& of, const Given& given) {
  const Value items = listed(of);
  Growing made;
  if (given.all().empty()) {
    given.check({"attribute", "default"});
    const Value *const path = given.find(9, "attribute"), *const otherwise = given.find(9, "default");
    if (!path) trouble("map is given neither a filter nor an attribute");
    for (const Value& item : *items.list()) {
      Value found = at_path(item, *path);
      made.add(found.is_undefined() && otherwise ? *otherwise : std::move(found));
    }
    return made.value();
  }
  const std::string& filter = need_text(given.all()[0], "map");
  if (filter == "map" || filter == "select" || filter == "reject") not_there("'" + filter + "' in a map");
  for (const Value& item : *items.list())
    made.add(call_filter(filter, item, given.all().subspan(1), given.named()));
  return made.value();
}

// select, reject: by a test; selectattr, rejectattr: by a test of what an attribute is.
Value selected(const std::string& name, const Value& of, const Given& given) {
  const bool keeps = name.starts_with("select"), by_attribute = name.ends_with("attr");
  std::span<const Value> rest = given.all();
  given.check({"", "", "", ""});
  const Value path = by_attribute ? argument(rest, 0, name) : Value();
  if (by_attribute) rest = rest.subspan(1);
  Growing kept;
  const Value items = listed(of);
  for (const Value& item : *items.list()) {
    const Value asked = by_attribute ? at_path(item, path) : item;
    const bool passes =
        rest.empty() ? asked.is_true() : passes_test(need_text(rest[0], name), asked, rest.subspan(1));
    if (passes == keeps) kept.add(item);
  }
  return kept.value();
}

// The pairs of a dict in the order of keys, or of values.
Value sorted_pairs(const Value& of, const Given& given) {
  given.check({"case_sensitive", "by", "reverse"});
  if (!of.dict()) not_there(std::string("dictsort of ") + of.kind());
  const Value* const by = given.find(1, "by");
  const std::size_t part = by && need_text(*by, "dictsort") == "value" ? 1 : 0;
  const bool exact = given.flag(0, "case_sensitive"), turned = given.flag(2, "reverse");
  const Value pairs = call_method("items", of, {}, {});
  List list = *pairs.list();
  const auto key_of = [&](const Value& pair) {
    const Value& key = (*pair.list())[part];
    return key.as<std::string>() && !exact ? Value(in_lower_case(*key.as<std::string>())) : key;
  };
  std::vector<std::pair<Value, std::size_t>> keys;
  for (std::size_t i = 0; i < list.size(); ++i) keys.emplace_back(key_of(list[i]), i);
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
    return turned ? compares("<", b.first, a.first) : compares("<", a.first, b.first);
  });
  List sorted;
  for (const auto& key : keys) sorted.push_back(list[key.second]);
  return Value::of(std::move(sorted));
}

Value end_of(const Value& of, bool first) {
  const Value items = listed(of);
  if (items.list()->empty()) return {Undefined{first ? "a first item" : "a last item"}};
  return first ? items.list()->front() : items.list()->back();
}

Value length_of(const Value& of) {
  if (const auto* const text = of.as<std::string>()) return {letters_in(*text)};
  if (const List* const list = of.list()) return {static_cast<std::int64_t>(list->size())};
  if (const Dict* const dict = of.dict()) return {static_cast<std::int64_t>(dict->entries().size())};
  if (of.is_undefined()) return {std::int64_t{0}};
  trouble(std::string("length is asked of ") + of.kind());
}

// Puts spaces in front of lines, but for the first.
std::string indented(const std::string& text, const Given& given) {
  given.check({"width", "first", "blank"});
  const Value* const width = given.find(0, "width");
  constexpr std::int64_t widest = 1000;
  std::string indent = width && width->as<std::string>() ? *width->as<std::string>() : "    ";
  if (width && !width->as<std::string>())
    indent = std::string(
        static_cast<std::size_t>(std::clamp(need_number(*width, "indent"), std::int64_t{0}, widest)), ' ');
  std::string made = given.flag(1, "first") ? indent : "";
  const Value lines = call_text_method("splitlines", text + "\n", {});
  for (const Value& line : *lines.list()) {
    const auto& one = *line.as<std::string>();
    if (&line != lines.list()->data())
      append(made, one.empty() && !given.flag(2, "blank") ? "\n" : "\n" + indent);
    append(made, one);
  }
  return made;
}

// Jinja's own words end at other letters than those of Python's title().
std::string titled(std::string_view text) {
  std::string made;
  bool begins = true;
  for (const char byte : text) {
    const std::string_view letter(&byte, 1);
    if (static_cast<unsigned char>(byte) >= 0x80) not_there("title case of letters beyond ASCII");
    made += begins ? in_upper_case(letter) : in_lower_case(letter);
    begins = byte == '-' || byte == '(' || byte == '{' || byte == '[' || byte == '<' || is_space(letter);
  }
  return made;
}

// The number that a text begins and ends with, or the default.
Value number_of(const Value& of, const Given& given) {
  given.check({"default"});
  const Value* const given_default = given.find(0, "default");
  const Value otherwise = given_default ? *given_default : Value(std::int64_t{0});
  if (const std::optional<std::int64_t> whole = whole_number(of)) return {*whole};
  if (const auto* const number = of.as<double>()) {
    if (std::abs(*number) >= 9e18) trouble("a number is too large for int");
    return {static_cast<std::int64_t>(*number)};
  }
  const auto* const text = of.as<std::string>();
  if (!text) return otherwise;
  const std::string digits = stripped(*text, {}, true, true);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error == std::errc() && end == digits.data() + digits.size()) return {number};
  if (!digits.empty() && digits.find_first_of("0123456789") != digits.npos)
    not_there("int of '" + digits + "'");
  return otherwise;
}

Value reversed(const Value& of) {
  if (of.as<std::string>()) return sliced(of, {}, {}, -1);
  const Value items = listed(of);
  return Value::of(List(items.list()->rbegin(), items.list()->rend()));
}

// Filters that make a text of what is written as one.
std::optional<Value> text_filter(const std::string& name, const Value& of, const Given& given) {
  if (name == "trim") {
    given.check({"chars"});
    const Value* const letters = given.find(0, "chars");
    return Value(
        stripped(text_of(of), letters ? std::span(letters, 1) : std::span<const Value>(), true, true));
  }
  if (name == "replace") {
    given.check({"", "", "count"});
    if (given.named().empty()) return Value(replaced(text_of(of), given.all()));
    not_there("'count' of the filter 'replace' by its name");
  }
  if (name == "indent") return Value(indented(text_of(of), given));
  std::string (*plain)(std::string_view) = name == "lower"        ? in_lower_case
                                           : name == "upper"      ? in_upper_case
                                           : name == "capitalize" ? capitalized
                                           : name == "title"      ? titled
                                                                  : nullptr;
  if (!plain && name != "string") return {};
  given.check({});
  return Value(plain ? plain(text_of(of)) : text_of(of));
}

// Filters that take nothing besides their value.
std::optional<Value> plain_filter(const std::string& name, const Value& of) {
  if (name == "length" || name == "count") return length_of(of);
  if (name == "safe") return Value(text_of(of));
  if (name == "list") return listed(of);
  if (name == "first" || name == "last") return end_of(of, name == "first");
  if (name == "reverse") return reversed(of);
  if (name == "abs" && of.as<double>()) return Value(std::abs(*of.as<double>()));
  if (name == "abs") return Value(std::abs(need_number(of, name)));
  if (name == "items" && of.is_undefined()) return Value::of(List());
  if (name == "items" && of.dict()) return call_method(name, of, {}, {});
  return {};
}

}  // namespace

Value call_filter(const std::string& name, const Value& of, std::span<const Value> arguments,
                  const Named& named) {
  const Given given(name, arguments, named);
  if (name == "tojson") return {json_of(of, arguments, named)};
  if (name == "map") return mapped(of, given);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return selected(name, of, given);
  if (name == "dictsort") return sorted_pairs(of, given);
  if (name == "int") return number_of(of, given);
  if (name == "default" || name == "d") {
    given.check({"default_value", "boolean"});
    if (!of.is_undefined() && !(given.flag(1, "boolean") && !of.is_true())) return of;
    const Value* const otherwise = given.find(0, "default_value");
    return otherwise ? *otherwise : Value(std::string());
  }
  if (name == "join") {
    given.check({"d", "attribute"});
    const Value *const between = given.find(0, "d"), *const path = given.find(1, "attribute");
    const Value items = path ? mapped(of, Given(name, {}, {{"attribute", *path}})) : of;
    return {joined(items, between ? text_of(*between) : "")};
  }
  if (std::optional<Value> made = text_filter(name, of, given)) return std::move(*made);
  if (std::optional<Value> made = plain_filter(name, of)) {
    given.check({});
    return std::move(*made);
  }
  not_there("the filter '" + name + "' of " + of.kind());
}

namespace {

// ------------------------------------------------------------------- conditions
// Jinja's tests, and comparisons.

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
