// Reads one TOML text into a tree.
#include "recipe/toml_reader.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- toml precheck
// Walks a TOML text outside its strings and comments.

bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

bool starts_key(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const bool digit = c >= '0' && c <= '9';
  return letter || digit || c == '-' || c == '_' || c == '"' || c == '\'';
}

class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  // Returns the offset of what is refused, and sets reason().
  std::optional<std::size_t> run() {
    while (at_ < text_.size() && reason_.empty()) {
      const char c = text_[at_];
      if (c == '#')
        skip_comment();
      else if (c == '"' || c == '\'')
        skip_string(c);
      else
        take(c);
    }
    return reason_.empty() ? std::nullopt : std::optional(at_);
  }

  std::string_view reason() const { return reason_; }

 private:
  void take(char c) {
    if (beyond_ascii(c))
      return refuse(
          at_, "TOML syntax: a character beyond ASCII stands outside quotes; put the name or text in them");
    if (c == '.' && ++key_depth_ > max_key_depth) return refuse(at_, "key nests deeper than 16 tables");
    if (std::string_view("=,{}[]\n").find(c) != std::string_view::npos) key_depth_ = 1;
    if (c == '[' && open_ == 0 && line_start_) check_header();
    if (!reason_.empty()) return;
    if (c == '[' || c == '{') ++open_;
    if (c == ']' || c == '}') open_ = std::max(open_ - 1, 0);
    if (c == '\n')
      line_start_ = true;
    else if (c != ' ' && c != '\t')
      line_start_ = false;
    ++at_;
  }

  void check_header() {
    std::size_t name = at_ + 1;
    if (text_.substr(name).starts_with('[')) ++name;
    name = text_.find_first_not_of(" \t", name);
    if (name == std::string_view::npos || text_[name] == ']' || starts_key(text_[name])) return;
    refuse(name,
           "TOML syntax, table header: expected a name of letters, digits, '_' and '-', or one in quotes");
  }

  void refuse(std::size_t at, std::string_view reason) {
    at_ = at;
    reason_ = reason;
  }

  void skip_comment() {
    const std::size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
  }

  void skip_string(char quote) {
    line_start_ = false;
    if (at_ > 0 && std::string_view(" \t\r\n=,.[{").find(text_[at_ - 1]) == std::string_view::npos)
      return refuse(at_, "TOML syntax: a quote stands within a name or value; put all of it in quotes");
    const std::string three(3, quote);
    if (text_.substr(at_).starts_with(three)) return skip_long_string(quote, three);
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        return;
      }
      if (escapes(quote)) ++at_;
    }
  }

  void skip_long_string(char quote, std::string_view three) {
    for (at_ += 3; at_ < text_.size(); ++at_) {
      if (quote == '"' && text_[at_] == '\\') check_continued_line();
      if (!reason_.empty()) return;
      if (escapes(quote))
        ++at_;
      else if (text_.substr(at_).starts_with(three)) {
        at_ += 3;
        // The last quotes of the text itself may touch the closing ones.
        for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
        return;
      }
    }
  }

  void check_continued_line() {
    const std::size_t next = text_.find_first_not_of(" \t\r\n\v\f", at_ + 1);
    if (next != std::string_view::npos && beyond_ascii(text_[next]))
      refuse(next, "after a backslash that continues a line, the text must go on with an ASCII character");
  }

  bool escapes(char quote) const {
    return quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n';
  }

  std::string_view text_;
  std::string_view reason_;
  std::size_t at_ = 0;
  int key_depth_ = 1;
  int open_ = 0;  // number of open brackets and braces
  bool line_start_ = true;
};

}  // namespace

std::optional<Refusal> precheck_toml(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  Walk walk(text);
  const std::optional<std::size_t> found = walk.run();
  if (!found) return std::nullopt;
  Refusal refusal{1, 1, walk.reason()};
  for (std::size_t i = 0; i < *found;) {
    const bool newline = text[i] == '\n';
    refusal.line += newline ? 1 : 0;
    refusal.column = newline ? 1 : refusal.column + 1;
    i += decode_utf8(text.substr(i)).bytes;
  }
  return refusal;
}

}  // namespace prun::recipe

// ------------------------------------------------------------------- toml reader

// The library asserts what a hostile text can break. Aborting is no answer, and its NDEBUG form lets the
// optimizer rely on what may be false: here a broken assertion is an exception like any syntax error.
namespace prun::recipe {
struct ParserGaveUp {};
[[noreturn]] inline void give_up() { throw ParserGaveUp(); }
}  // namespace prun::recipe
#undef NDEBUG
#define TOML_ASSERT(expression)                   \
  do {                                            \
    if (!(expression)) ::prun::recipe::give_up(); \
  } while (false)
#define TOML_MAX_NESTED_VALUES 16
// The library is header-only, whatever the build says: a compiled library would bring its own asserts and
// bounds.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "recipe/schema.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------ names given twice

// Returns "[run]" of "[run] # all", or nothing.
std::string_view header_in(std::string_view line) {
  line = trim(line);
  const std::size_t end = line.find(']');
  return line.starts_with('[') && end != line.npos ? line.substr(0, end + 1) : std::string_view();
}

std::string_view key_in(std::string_view line) {
  const std::size_t equals = line.find('=');
  const std::string_view key = trim(line.substr(0, equals));
  return equals == line.npos || key.starts_with('#') ? std::string_view() : key;
}

std::string_view name_in(std::string_view header) {
  const std::size_t first = header.find_first_not_of("[ \t"), last = header.find_last_not_of("] \t");
  return first == header.npos ? std::string_view() : header.substr(first, last + 1 - first);
}

bool takes_several(std::string_view section) {
  const auto rules = core_sections();
  return std::any_of(rules.begin(), rules.end(),
                     [&](const SectionRule& rule) { return rule.list && rule.name == section; });
}

std::string first_in(std::size_t index) { return "; the first is in line " + std::to_string(index + 1); }

// Returns the end of a message about the table or the key of that line, which the text gives twice: "; the
// first is in line 3, ..."; it is empty if none is found, as when one of the two is dotted.
std::string first_mention(std::string_view text, std::uint32_t line) {
  const std::vector<std::string_view> lines = split(text, '\n');
  if (line < 1 || line > lines.size()) return {};
  const std::string_view header = header_in(lines[line - 1]), key = key_in(lines[line - 1]);
  if (!header.empty()) {
    const std::string_view name = name_in(header);
    for (std::size_t i = 0; i + 1 < line; ++i)
      if (const std::string_view other = header_in(lines[i]); !other.empty() && name_in(other) == name)
        return first_in(i) + (takes_several(name)
                                  ? ", and there may be several: write [[" + std::string(name) + "]] for each"
                                  : ", so put both in one");
    return {};
  }
  for (std::size_t i = line - 1; !key.empty() && i-- > 0 && header_in(lines[i]).empty();)
    if (key_in(lines[i]) == key) return first_in(i) + ", so leave one of them out";
  return {};
}

// ------------------------------------------------------------ the tree

constexpr std::size_t max_keys = 4096;

class TreeBuilder {
 public:
  TreeBuilder(std::shared_ptr<const Source> source, Diagnostics& diagnostics)
      : source_(std::move(source)), diagnostics_(diagnostics) {}

  std::optional<Node> build(const toml::table& root) {
    Node node = convert_table(root);
    if (keys_ <= max_keys) return node;
    diagnostics_.add(Location{source_}, "more than " + std::to_string(max_keys) + " keys");
    return std::nullopt;
  }

 private:
  Location place(const toml::source_region& region) const {
    const bool one_line = region.begin.line == region.end.line;
    const std::uint32_t rest_of_line = std::numeric_limits<std::uint32_t>::max() / 2;
    const std::uint32_t length = one_line ? region.end.column - region.begin.column : rest_of_line;
    return {source_, region.begin.line, region.begin.column, std::max(length, 1u)};
  }

  Node convert(const toml::node& from) {
    if (const auto* table = from.as_table()) return convert_table(*table);
    Node node;
    node.at = place(from.source());
    node.kind = Node::Kind::date;
    if (const auto* array = from.as_array()) {
      node.kind = Node::Kind::list;
      for (const toml::node& item : *array) node.items.push_back(convert(item));
    } else if (const auto* integer = from.as_integer()) {
      node.kind = Node::Kind::integer;
      node.integer = integer->get();
    } else if (const auto* real = from.as_floating_point()) {
      node.kind = Node::Kind::real;
      node.real = real->get();
    } else if (const auto* boolean = from.as_boolean()) {
      node.kind = Node::Kind::boolean;
      node.boolean = boolean->get();
    } else if (const auto* text = from.as_string()) {
      node.kind = Node::Kind::string;
      node.text = text->get();
    }
    return node;
  }

  Node convert_table(const toml::table& from) {
    Node node;
    node.at = place(from.source());
    keys_ += from.size();
    if (keys_ > max_keys) return node;
    for (const auto& [key, value] : from)
      node.members.push_back({std::string(key.str()), place(key.source()), convert(value)});
    // The library sorts by name; a recipe's order has meaning (mesh axes nest in it).
    std::sort(node.members.begin(), node.members.end(), [](const Member& a, const Member& b) {
      return std::tie(a.at.line, a.at.column) < std::tie(b.at.line, b.at.column);
    });
    return node;
  }

  std::shared_ptr<const Source> source_;
  Diagnostics& diagnostics_;
  std::size_t keys_ = 0;
};

void replace(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
}

// The library says "Error while parsing string: ..."; its other words are fine.
std::string syntax_message(std::string_view description) {
  std::string text(description);
  replace(text, "Error while parsing ", "TOML syntax, ");
  replace(text, "could not determine value type",
          "not a TOML value (text needs quotes, booleans are true and false)");
  replace(text, " (TOML_MAX_NESTED_VALUES)", "");
  if (description.starts_with("Error while parsing boolean")) text += "; text needs quotes";
  return text;
}

}  // namespace

std::optional<Node> read_toml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  if (const auto refusal = precheck_toml(source->text)) {
    diagnostics.add(Location{source, refusal->line, refusal->column, 1}, std::string(refusal->reason));
    return std::nullopt;
  }
  try {
    const toml::table root = toml::parse(std::string_view(source->text));
    return TreeBuilder(source, diagnostics).build(root);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    std::string message = syntax_message(error.description());
    if (error.description().starts_with("cannot redefine") ||
        error.description().find(": cannot redefine") != std::string_view::npos)
      message += first_mention(source->text, at.line);
    diagnostics.add(Location{source, at.line, at.column, 1}, std::move(message));
  } catch (const ParserGaveUp&) {
    diagnostics.add(Location{source}, "TOML syntax: the file is broken in a way that cannot be placed");
  }
  return std::nullopt;
}

}  // namespace prun::recipe
