// What Python's texts can do.
#include "chat/text_methods.hpp"
#include "chat/helpers.hpp"
#include "tokenizer/letters.hpp"
#include "tokenizer/normal_form.hpp"

namespace prun::chat {
namespace {

// Returns the letters of one text.
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
