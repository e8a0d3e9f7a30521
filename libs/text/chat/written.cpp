// Values as Python writes them: by str(), repr() and json.dumps().
#include <charconv>
#include <cmath>
#include <cstdio>

#include "chat/helpers.hpp"
#include "chat/text_methods.hpp"
#include "tokenizer/letters.hpp"

namespace prun::chat {
namespace {

void append_code(std::string& to, const char* pattern, std::uint32_t value) {
  char code[16];
  std::snprintf(code, sizeof code, pattern, value);
  to += code;
}

// The fewest digits that read back as the same number, with an exponent where it is large or small.
std::string text_of_real(double number) {
  if (!std::isfinite(number)) not_there("what is no finite number");
  char digits[64];
  const double size = std::abs(number);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(digits, digits + sizeof digits, number,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(digits, end);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

// Says whether repr() writes a letter by its code.
bool is_hidden(std::string_view letter, char32_t value) {
  if (value < 0x7F) return value < 0x20;
  return (is_of(LetterClass::bert_removed, value) && value != 0xFFFD) || is_space(letter);
}

void append_repr_text(const std::string& text, std::string& out) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  each_letter(text, [&](std::string_view letter) {
    const char32_t value = decode_utf8(letter).value;
    constexpr std::string_view plain = "\\\n\r\t", written = "\\nrt";
    if (out.size() > most_bytes) trouble("the text becomes too long");
    const std::size_t at = letter.size() == 1 ? plain.find(letter[0]) : plain.npos;
    if (at != plain.npos || letter[0] == quote) {
      out += '\\';
      out += at != plain.npos ? written[at] : quote;
    } else if (is_hidden(letter, value)) {
      append_code(out, value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
    } else {
      out += letter;
    }
  });
  out += quote;
}

void append_repr(const Value& value, std::string& out) {
  std::string_view between;
  const auto next = [&] { append(out, std::exchange(between, ", ")); };
  if (const auto* const text = value.as<std::string>()) return append_repr_text(*text, out);
  if (const List* const list = value.list()) {
    out += value.is_tuple() ? '(' : '[';
    for (const Value& item : *list) {
      next();
      append_repr(item, out);
    }
    if (value.is_tuple() && list->size() == 1) out += ',';
    out += value.is_tuple() ? ')' : ']';
  } else if (const Dict* const dict = value.dict()) {
    out += '{';
    for (const auto& [key, item] : dict->entries()) {
      next();
      append_repr_text(key, out);
      append(out, ": ");
      append_repr(item, out);
    }
    out += '}';
  } else if (value.is_undefined()) {
    not_there("what is not there, written in a list");
  } else {
    append(out, text_of(value));
  }
}

// How tojson writes, by its arguments.
struct JsonStyle {
  bool ascii = false, sorted = false, lines = false;
  std::string indent, between_items = ", ", behind_keys = ": ";
};

class JsonText {
 public:
  explicit JsonText(const JsonStyle& style) : style_(style) {}

  std::string of(const Value& value) {
    add(value, 0);
    return std::move(out_);
  }

 private:
  void add(const Value& value, int depth) {
    if (const auto* const text = value.as<std::string>()) return add_text(*text);
    if (const List* const list = value.list())
      return add_parts('[', ']', list->size(), depth, [&](std::size_t i) { add((*list)[i], depth + 1); });
    if (const Dict* const dict = value.dict()) return add_dict(*dict, depth);
    if (const bool* const flag = value.as<bool>())
      append(out_, *flag ? "true" : "false");
    else if (value.is_none())
      append(out_, "null");
    else if (value.as<std::int64_t>() || value.as<double>())
      append(out_, text_of(value));
    else
      not_there(std::string("tojson of ") + value.kind());
  }

  void add_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<std::string, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sorted)
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) { return a->first < b->first; });
    add_parts('{', '}', entries.size(), depth, [&](std::size_t i) {
      add_text(entries[i]->first);
      append(out_, style_.behind_keys);
      add(entries[i]->second, depth + 1);
    });
  }

  template <class Part>
  void add_parts(char begin, char end, std::size_t count, int depth, Part&& part) {
    out_ += begin;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) append(out_, style_.between_items);
      begin_line(depth + 1);
      part(i);
    }
    if (count > 0) begin_line(depth);
    out_ += end;
  }

  void begin_line(int depth) {
    if (!style_.lines) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) append(out_, style_.indent);
  }

  void add_text(const std::string& text) {
    out_ += '"';
    each_letter(text, [&](std::string_view letter) { add_letter(letter); });
    out_ += '"';
  }

  void add_letter(std::string_view letter) {
    if (out_.size() > most_bytes) trouble("the text becomes too long");
    constexpr std::string_view plain = "\"\\\n\r\t\b\f", written = "\"\\nrtbf";
    const std::uint32_t value = decode_utf8(letter).value;
    if (const std::size_t at = letter.size() == 1 ? plain.find(letter[0]) : plain.npos; at != plain.npos) {
      out_ += '\\';
      out_ += written[at];
    } else if (style_.ascii && value >= 0x10000) {
      append_code(out_, "\\u%04x", 0xD800 + ((value - 0x10000) >> 10));
      append_code(out_, "\\u%04x", 0xDC00 + ((value - 0x10000) & 0x3FF));
    } else if (value < 0x20 || (style_.ascii && value >= 0x7F)) {
      append_code(out_, "\\u%04x", value);
    } else {
      out_ += letter;
    }
  }

  const JsonStyle& style_;
  std::string out_;
};

void set_style(JsonStyle& style, std::string_view name, const Value& value) {
  if (name == "ensure_ascii") {
    style.ascii = value.is_true();
  } else if (name == "sort_keys") {
    style.sorted = value.is_true();
  } else if (name == "indent" && !value.is_none()) {
    constexpr std::int64_t widest = 1000;
    const auto* const text = value.as<std::string>();
    const std::int64_t width = text ? 0 : std::clamp(need_number(value, "indent"), std::int64_t{0}, widest);
    style.indent = text ? *text : std::string(static_cast<std::size_t>(width), ' ');
    style.lines = true;
  } else if (name == "separators" && !value.is_none()) {
    if (!value.list() || value.list()->size() != 2) trouble("separators of tojson are two texts");
    style.between_items = need_text((*value.list())[0], "tojson");
    style.behind_keys = need_text((*value.list())[1], "tojson");
  } else if (name != "indent" && name != "separators") {
    not_there("'" + std::string(name) + "' of the filter 'tojson'");
  }
}

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* const text = value.as<std::string>()) return *text;
  if (const auto* const number = value.as<std::int64_t>()) return std::to_string(*number);
  if (const auto* const number = value.as<double>()) return text_of_real(*number);
  if (const bool* const flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  if (!value.list() && !value.dict()) not_there(std::string(value.kind()) + " written as a text");
  std::string out;
  append_repr(value, out);
  return out;
}

std::string json_of(const Value& value, std::span<const Value> arguments, const Named& named) {
  constexpr std::string_view names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  at_most(arguments, std::size(names), "tojson");
  JsonStyle style;
  std::vector<std::pair<std::string_view, const Value*>> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) given.emplace_back(names[i], &arguments[i]);
  for (const auto& [name, argument] : named) given.emplace_back(name, &argument);
  for (const auto& [name, argument] : given)
    if (name == "indent" && !argument->is_none()) style.between_items = ",";
  for (const auto& [name, argument] : given) set_style(style, name, *argument);
  return JsonText(style).of(value);
}

}  // namespace prun::chat
