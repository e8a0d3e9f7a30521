#include "chat/functions.hpp"

#include <array>

#include "chat/helpers.hpp"

namespace prun::chat {
namespace {

Value range_of(std::span<const Value> arguments) {
  constexpr std::int64_t longest = 10'000, largest = std::int64_t{1} << 62;
  const auto number = [&](std::size_t i) { return need_number(argument(arguments, i, "range"), "range"); };
  const std::int64_t first = arguments.size() > 1 ? number(0) : 0,
                     last = number(arguments.size() > 1 ? 1 : 0);
  const std::int64_t step = arguments.size() > 2 ? number(2) : 1;
  at_most(arguments, 3, "range");
  if (step == 0 || std::abs(step) > longest || std::max(std::abs(first), std::abs(last)) > largest ||
      std::abs((last - first) / step) > longest)
    trouble("range is given numbers that prun does not have in templates");
  List list;
  for (std::int64_t i = first; step > 0 ? i < last : i > last; i += step) list.emplace_back(i);
  return Value::of(std::move(list));
}

Value items_of(const Dict& dict) {
  Growing items;
  for (const auto& [key, value] : dict.entries()) items.add(Value::of(List{Value(key), value}, true));
  return items.value();
}

Value values_of(const Dict& dict) {
  Growing values;
  for (const auto& entry : dict.entries()) values.add(entry.second);
  return values.value();
}

Value call_dict_method(const std::string& name, const Dict& dict, std::span<const Value> arguments) {
  at_most(arguments, name == "get" ? 2 : 0, name);
  if (name == "items") return items_of(dict);
  if (name == "values") return values_of(dict);
  if (name == "get") {
    const auto* const key = argument(arguments, 0, name).as<std::string>();
    const Value* const found = key ? dict.find(*key) : nullptr;
    return found ? *found : arguments.size() > 1 ? arguments[1] : Value(nullptr);
  }
  if (name == "keys") return listed(Value::of(dict));
  if (name == "copy") return Value::of(dict);
  not_there("'" + name + "' of a dict");
}

Value call_list_method(const std::string& name, const List& list, std::span<const Value> arguments) {
  at_most(arguments, 1, name);
  const auto is_it = [&](const Value& one) { return one.equals(argument(arguments, 0, name)); };
  if (name == "count") return {static_cast<std::int64_t>(std::count_if(list.begin(), list.end(), is_it))};
  if (name == "index") {
    const auto found = std::find_if(list.begin(), list.end(), is_it);
    if (found == list.end()) trouble("index is asked for what is not in the list");
    return {static_cast<std::int64_t>(found - list.begin())};
  }
  not_there("'" + name + "' of a list");
}

// Names of Python's own, which Jinja finds before a dict's keys.
bool is_method(const Value& of, std::string_view name) {
  constexpr std::array dicts = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                "pop",   "popitem", "setdefault", "update", "values"};
  constexpr std::array lists = {"append", "clear", "copy",   "count",   "extend", "index",
                                "insert", "pop",   "remove", "reverse", "sort"};
  constexpr std::array texts = {
      "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
      "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
      "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
      "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
      "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
      "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
      "swapcase",   "title",        "translate",    "upper",   "zfill"};
  const auto is_in = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (of.dict()) return is_in(dicts);
  if (of.list()) return of.is_tuple() ? name == "count" || name == "index" : is_in(lists);
  return of.as<std::string>() && is_in(texts);
}

const Dict* entries_of(const Value& of) {
  const auto* const space = of.as<Value::Namespace>();
  return space ? space->names : of.dict();
}

// Where Python's slices begin and end, and in which steps.
struct Reach {
  std::int64_t begin, end, step;
};
Reach reach_of(std::int64_t size, std::optional<std::int64_t> first, std::optional<std::int64_t> last,
               std::int64_t step) {
  const std::int64_t least = step < 0 ? -1 : 0, most = step < 0 ? size - 1 : size;
  const auto place = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, least, most); };
  return {first      ? place(*first)
          : step < 0 ? most
                     : least,
          last       ? place(*last)
          : step < 0 ? least
                     : most,
          step};
}

}  // namespace

Value call_function(const std::string& name, std::span<const Value> arguments, const Named& named,
                    const std::optional<Day>& today) {
  if (name == "dict") {
    Dict dict = arguments.empty() ? Dict() : arguments[0].dict() ? *arguments[0].dict() : Dict();
    if (arguments.size() > 1 || (!arguments.empty() && !arguments[0].dict()))
      trouble("dict is given what prun does not have in templates");
    for (const auto& [key, value] : named) dict.set(key, value);
    return Value::of(std::move(dict));
  }
  if (!named.empty()) not_there("'" + named[0].first + "' of the function '" + name + "'");
  if (name == "raise_exception")
    trouble("the template refuses the conversation: " + text_of(argument(arguments, 0, name)));
  if (name == "strftime_now") {
    if (!today)
      trouble(
          "the template asks for the day's date, which would make other tokens each day; say which with "
          "data.date");
    return {text_of_day(*today, need_text(argument(arguments, 0, name), name))};
  }
  if (name == "range") return range_of(arguments);
  not_there("the function '" + name + "'");
}

Value call_method(const std::string& name, const Value& of, std::span<const Value> arguments,
                  const Named& named) {
  if (!named.empty()) not_there("'" + named[0].first + "' of the method '" + name + "'");
  if (const auto* const text = of.as<std::string>()) return call_text_method(name, *text, arguments);
  if (const Dict* const dict = of.dict()) return call_dict_method(name, *dict, arguments);
  if (const List* const list = of.list()) return call_list_method(name, *list, arguments);
  if (const auto* const undefined = of.as<Undefined>())
    trouble("'" + undefined->name + "' is not there, and '" + name + "' of it is called");
  not_there("'" + name + "' of " + of.kind());
}

Value attribute_of(const Value& of, const std::string& name) {
  if (const auto* const undefined = of.as<Undefined>())
    trouble("'" + undefined->name + "' is not there, and '" + name + "' of it is asked for");
  if (name.starts_with("_")) not_there("'" + name + "' of " + of.kind());
  if (is_method(of, name)) return {Value::Method{}};
  const Dict* const entries = entries_of(of);
  const Value* const found = entries ? entries->find(name) : nullptr;
  return found ? *found : Value(Undefined{name});
}

Value item_of(const Value& of, const Value& key) {
  if (const auto* const undefined = of.as<Undefined>())
    trouble("'" + undefined->name + "' is not there, and something of it is asked for");
  const auto* const name = key.as<std::string>();
  if (name) {
    const Dict* const entries = entries_of(of);
    const Value* const found = entries ? entries->find(*name) : nullptr;
    return found ? *found : attribute_of(of, *name);
  }
  const std::optional<std::int64_t> number = whole_number(key);
  const Value missing(Undefined{"an item"});
  if (!number || !(of.list() || of.as<std::string>())) return missing;
  const auto* const text = of.as<std::string>();
  const std::int64_t size = text ? letters_in(*text) : static_cast<std::int64_t>(of.list()->size());
  const std::int64_t at = *number < 0 ? *number + size : *number;
  if (at < 0 || at >= size) return missing;
  if (!text) return (*of.list())[static_cast<std::size_t>(at)];
  std::string_view rest = *text;
  for (std::int64_t i = 0; i < at; ++i) rest.remove_prefix(first_letter(rest).size());
  return {std::string(first_letter(rest))};
}

Value sliced(const Value& of, std::optional<std::int64_t> first, std::optional<std::int64_t> last,
             std::optional<std::int64_t> step) {
  constexpr std::int64_t largest = std::int64_t{1} << 32;
  const auto* const text = of.as<std::string>();
  if (!text && !of.list()) not_there(std::string("a slice of ") + of.kind());
  for (const auto& number : {first, last, step})
    if (number && std::abs(*number) > largest) trouble("a slice is given too large a number");
  if (step == 0) trouble("the step of a slice is zero");
  std::vector<std::string_view> letters;
  if (text) each_letter(*text, [&](std::string_view letter) { letters.push_back(letter); });
  const auto size = static_cast<std::int64_t>(text ? letters.size() : of.list()->size());
  const Reach reach = reach_of(size, first, last, step.value_or(1));
  std::string letters_kept;
  List kept;
  for (std::int64_t i = reach.begin; reach.step > 0 ? i < reach.end : i > reach.end; i += reach.step)
    if (const auto at = static_cast<std::size_t>(i); text)
      letters_kept += letters[at];
    else
      kept.push_back((*of.list())[at]);
  return text ? Value(std::move(letters_kept)) : Value::of(std::move(kept), of.is_tuple());
}

Value listed(const Value& of) {
  if (of.list()) return of;
  Growing items;
  if (const Dict* const dict = of.dict())
    for (const auto& entry : dict->entries()) items.add(Value(entry.first));
  else if (const auto* const text = of.as<std::string>())
    each_letter(*text, [&](std::string_view letter) { items.add(Value(std::string(letter))); });
  else if (!of.is_undefined())
    trouble(std::string("a list is to be made of ") + of.kind());
  return items.value();
}

}  // namespace prun::chat
