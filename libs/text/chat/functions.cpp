#include "chat/functions.hpp"

#include <array>
#include <charconv>
#include <chrono>

#include "tokenizer/letters.hpp"
#include "tokenizer/normalizer.hpp"

namespace prun::chat {
namespace {

// ------------------------------------------------------------------- day

constexpr std::array<const char*, 12> months = {"January",   "February", "March",    "April",
                                                "May",       "June",     "July",     "August",
                                                "September", "October",  "November", "December"};
constexpr std::array<const char*, 7> weekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                 "Thursday", "Friday", "Saturday"};

std::chrono::year_month_day date_of(const Day& day) {
  return {std::chrono::year(day.year), std::chrono::month(static_cast<unsigned>(day.month)),
          std::chrono::day(static_cast<unsigned>(day.day))};
}

std::string in_digits(int number, std::size_t digits) {
  std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

std::string part_of(const Day& day, char letter) {
  const std::string month = months[static_cast<std::size_t>(day.month - 1)];
  const std::string weekday = weekdays[std::chrono::weekday(date_of(day)).c_encoding()];
  switch (letter) {
    case 'Y': return in_digits(day.year, 4);
    case 'y': return in_digits(day.year % 100, 2);
    case 'm': return in_digits(day.month, 2);
    case 'd': return in_digits(day.day, 2);
    case 'e': return std::string(day.day < 10 ? 1 : 0, ' ') + std::to_string(day.day);
    case 'B': return month;
    case 'b':
    case 'h': return month.substr(0, 3);
    case 'A': return weekday;
    case 'a': return weekday.substr(0, 3);
    case 'F': return part_of(day, 'Y') + "-" + part_of(day, 'm') + "-" + part_of(day, 'd');
    case 'H':
    case 'M':
    case 'S': return "00";
    case '%': return "%";
    default: break;
  }
  throw Trouble{std::string("strftime_now of '%") + letter + "' is not something that prun has in templates"};
}

}  // namespace

std::optional<Day> read_day(std::string_view text) {
  Day day;
  const char *at = text.data(), *const end = at + text.size();
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return {};
  const auto read = [&](std::size_t from, std::size_t digits, int& to) {
    return std::from_chars(at + from, at + from + digits, to).ptr == at + from + digits;
  };
  if (!read(0, 4, day.year) || !read(5, 2, day.month) || !read(8, 2, day.day) || end != at + 10) return {};
  if (day.year < 1 || day.month < 1 || day.day < 1 || !date_of(day).ok()) return {};
  return day;
}

std::string text_of_day(const Day& day, std::string_view format) {
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      text += format[i];
      continue;
    }
    const bool bare = format[++i] == '-' && i + 1 < format.size();  // without what stands in front
    std::string part = part_of(day, format[bare ? ++i : i]);
    text += bare ? part.substr(std::min(part.find_first_not_of("0 "), part.size() - 1)) : part;
  }
  return text;
}

namespace {

// ------------------------------------------------------------------- functions

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

namespace {

// ------------------------------------------------------------------- text methods
// Computes what methods of Python's texts do.

std::vector<std::string_view> letters_of(std::string_view text) {
  std::vector<std::string_view> letters;
  each_letter(text, [&](std::string_view letter) { letters.push_back(letter); });
  return letters;
}

Value split_by_space(std::string_view text, std::int64_t most) {
  Growing parts;
  for (;;) {
    while (!text.empty() && is_space(first_letter(text))) text.remove_prefix(first_letter(text).size());
    if (text.empty()) return parts.value();
    std::size_t end = 0;
    while (end < text.size() && !is_space(first_letter(text.substr(end))))
      end += first_letter(text.substr(end)).size();
    if (most-- == 0) {
      parts.add(Value(stripped(text, {}, false, true)));
      return parts.value();
    }
    parts.add(Value(std::string(text.substr(0, end))));
    text.remove_prefix(end);
  }
}

// Splits from the left, at most so many times.
Value split_by(const std::string& text, const std::string& by, std::int64_t most) {
  Growing parts;
  for (std::size_t at = 0;;) {
    const std::size_t found = most-- == 0 ? text.npos : text.find(by, at);
    parts.add(Value(text.substr(at, found - at)));
    if (found == text.npos) return parts.value();
    at = found + by.size();
  }
}

Value split_from_right(const std::string& text, const std::string& by, std::int64_t most) {
  List parts;
  for (std::size_t end = text.size();;) {
    const std::size_t found = most-- == 0 || end < by.size() ? text.npos : text.rfind(by, end - by.size());
    if (found == text.npos) {
      parts.emplace_back(text.substr(0, end));
      std::reverse(parts.begin(), parts.end());
      return Value::of(std::move(parts));
    }
    parts.emplace_back(text.substr(found + by.size(), end - found - by.size()));
    end = found;
  }
}

Value split_of(const std::string& name, const std::string& text, std::span<const Value> arguments) {
  at_most(arguments, 2, name);
  const std::int64_t most = arguments.size() > 1 ? need_number(arguments[1], name) : -1;
  if (arguments.empty() || arguments[0].is_none()) {
    if (name == "rsplit") not_there("rsplit by white space");
    return split_by_space(text, most);
  }
  const std::string& by = need_text(arguments[0], name);
  if (by.empty()) trouble(name + " is given a text without letters");
  if (name == "rsplit" && most >= 0) return split_from_right(text, by, most);
  return split_by(text, by, most);
}

Value lines_of(std::string_view text) {
  Growing lines;
  while (!text.empty()) {
    std::size_t end = 0;
    const auto ends_line = [&](std::string_view letter) {
      const char32_t value = decode_utf8(letter).value;
      return (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) || value == 0x85 ||
             value == 0x2028 || value == 0x2029;
    };
    while (end < text.size() && !ends_line(first_letter(text.substr(end))))
      end += first_letter(text.substr(end)).size();
    lines.add(Value(std::string(text.substr(0, end))));
    const std::string_view behind = text.substr(end);
    text.remove_prefix(end + (behind.starts_with("\r\n") ? 2 : first_letter(behind).size()));
  }
  return lines.value();
}

// The place of a letter, by letters in front of it; -1 where there is none.
Value place_in(std::string_view text, std::size_t at) {
  return {at == text.npos ? std::int64_t{-1} : letters_in(text.substr(0, at))};
}

std::int64_t times_in(std::string_view text, std::string_view what) {
  if (what.empty()) return letters_in(text) + 1;
  std::int64_t times = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++times;
  return times;
}

// Begins or ends with one text, or with any of a tuple.
bool borders(const std::string& text, const Value& with, bool begins) {
  const auto does = [&](const Value& one) {
    const std::string& part = need_text(one, begins ? "startswith" : "endswith");
    return begins ? text.starts_with(part) : text.ends_with(part);
  };
  if (with.is_tuple()) return std::any_of(with.list()->begin(), with.list()->end(), does);
  return does(with);
}

std::optional<Value> changed(const std::string& name, const std::string& text,
                             std::span<const Value> arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    at_most(arguments, 1, name);
    return Value(stripped(text, arguments, name != "rstrip", name != "lstrip"));
  }
  if (name == "replace") return Value(replaced(text, arguments));
  if (name == "join") return Value(joined(argument(arguments, 0, name), text));
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = need_text(argument(arguments, 0, name), name);
    const bool front = name == "removeprefix",
               is_there = front ? text.starts_with(part) : text.ends_with(part);
    if (!is_there) return Value(text);
    return Value(front ? text.substr(part.size()) : text.substr(0, text.size() - part.size()));
  }
  if (!arguments.empty()) return {};
  if (name == "lower") return Value(in_lower_case(text));
  if (name == "upper") return Value(in_upper_case(text));
  if (name == "capitalize") return Value(capitalized(text));
  if (name == "title") return Value(in_title_case(text));
  return {};
}

// Asks something of each letter, of ASCII alone.
bool all_letters(const std::string& text, std::string_view name) {
  const auto is_it = [&](unsigned char byte) {
    if (byte >= 0x80) not_there(std::string(name) + " of letters beyond ASCII");
    const bool digit = byte >= '0' && byte <= '9', letter = (byte | 32) >= 'a' && (byte | 32) <= 'z';
    return name == "isdigit" ? digit : name == "isalpha" ? letter : digit || letter;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), is_it);
}

}  // namespace

// White space as Python's strip() has it: that of Unicode and four separators.
bool is_space(std::string_view letter) {
  return (letter.size() == 1 && letter[0] >= 0x1C && letter[0] <= 0x1F) ||
         leading_spaces(letter) == letter.size();
}

std::string stripped(std::string_view text, std::span<const Value> arguments, bool left, bool right) {
  const bool given = !arguments.empty() && !arguments[0].is_none();
  const std::string letters = given ? need_text(arguments[0], "strip") : std::string();
  const std::vector<std::string_view> set = letters_of(letters);
  const auto goes = [&](std::string_view letter) {
    return given ? std::find(set.begin(), set.end(), letter) != set.end() : is_space(letter);
  };
  while (left && !text.empty() && goes(first_letter(text))) text.remove_prefix(first_letter(text).size());
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!goes(text.substr(at))) break;
    text = text.substr(0, at);
  }
  return std::string(text);
}

std::string replaced(const std::string& text, std::span<const Value> arguments) {
  at_most(arguments, 3, "replace");
  const std::string& from = need_text(argument(arguments, 0, "replace"), "replace");
  const std::string& to = need_text(argument(arguments, 1, "replace"), "replace");
  std::int64_t times =
      arguments.size() > 2 && !arguments[2].is_none() ? need_number(arguments[2], "replace") : -1;
  if (from.empty()) not_there("replace of an empty text");
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t found = times-- == 0 ? text.npos : text.find(from, at);
    append(made, std::string_view(text).substr(at, found - at));
    if (found == text.npos) return made;
    append(made, to);
    at = found + from.size();
  }
}

std::string joined(const Value& list, const std::string& between) {
  const Value items = listed(list);
  std::string text;
  for (const Value& item : *items.list()) {
    if (&item != items.list()->data()) append(text, between);
    append(text, text_of(item));
  }
  return text;
}

std::string in_lower_case(std::string_view text) {
  std::string made;
  each_letter(text, [&](std::string_view letter) {
    const char32_t value = decode_utf8(letter).value;
    const std::u32string_view lower = lower_case_of(value);
    if (value < 0x80)
      made += value >= 'A' && value <= 'Z' ? static_cast<char>(value - 'A' + 'a') : letter[0];
    else if (lower.empty())
      made += letter;
    else
      for (const char32_t one : lower) append_utf8(made, one);
  });
  return made;
}

std::string in_upper_case(std::string_view text) {
  std::string made;
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0x80) not_there("upper case of letters beyond ASCII");
    made += byte >= 'a' && byte <= 'z' ? static_cast<char>(byte - 'a' + 'A') : byte;
  }
  return made;
}

std::string capitalized(std::string_view text) {
  const std::size_t first = first_letter(text).size();
  return in_upper_case(text.substr(0, first)) + in_lower_case(text.substr(first));
}

std::string in_title_case(std::string_view text) {
  std::string made;
  bool inside = false;  // a word
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0x80) not_there("title case of letters beyond ASCII");
    made += (inside ? in_lower_case : in_upper_case)(std::string_view(&byte, 1));
    inside = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
  }
  return made;
}

Value call_text_method(const std::string& name, const std::string& text, std::span<const Value> arguments) {
  if (std::optional<Value> made = changed(name, text, arguments)) return std::move(*made);
  if (name == "split" || name == "rsplit") return split_of(name, text, arguments);
  at_most(arguments, 1, name);
  if (name == "startswith" || name == "endswith")
    return {borders(text, argument(arguments, 0, name), name == "startswith")};
  if (name == "find" || name == "rfind") {
    const std::string& what = need_text(argument(arguments, 0, name), name);
    return place_in(text, name == "find" ? text.find(what) : text.rfind(what));
  }
  if (name == "count") return {times_in(text, need_text(argument(arguments, 0, name), name))};
  if (arguments.empty() && name == "splitlines") return lines_of(text);
  if (arguments.empty() && (name == "isdigit" || name == "isalpha" || name == "isalnum"))
    return {all_letters(text, name)};
  if (arguments.empty() && name == "isspace") {
    bool all = !text.empty();
    each_letter(text, [&](std::string_view letter) { all = all && is_space(letter); });
    return {all};
  }
  not_there("'" + name + "' of a text");
}

}  // namespace prun::chat
