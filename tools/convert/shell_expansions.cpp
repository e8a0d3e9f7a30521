#include "convert/shell_expansions.hpp"

#include "base/text.hpp"
#include "convert/whole_sum.hpp"

namespace prun::convert {
namespace {

constexpr std::size_t most_expanded = std::size_t{1} << 20;  // bytes that variables put in, all together
constexpr int deepest = 16;                                  // expansions within expansions

}  // namespace

const Words* ShellVariables::find(const std::string& name, const ShellText& at) {
  const auto found = values_.find(name);
  if (found == values_.end()) return nullptr;
  for (const std::string& word : found->second) expanded_bytes_ += word.size() + 1;
  if (expanded_bytes_ > most_expanded)
    at.fail(detail::concat("its variables expand to more than ", most_expanded, " bytes"));
  return &found->second;
}

// Reads the name of a variable after a $; it is empty where there is none.
std::string ShellExpansions::read_name() {
  if (std::isdigit(static_cast<unsigned char>(text_.now())) || text_.now() == '@' || text_.now() == '*' ||
      text_.now() == '#' || text_.now() == '?')
    return std::string(1, text_.take());
  return std::string(text_.take_name());
}

Words ShellExpansions::value_of(const std::string& name, const std::string& as_written) {
  if (const Words* const value = variables_.find(name, text_)) return *value;
  return name == "@" || name == "*" ? Words() : Words{as_written};
}

// Expands "NAME", "NAME[@]", "NAME:-text" or "NAME-text".
Words ShellExpansions::braced(std::string_view inner) {
  std::size_t end = 0;
  while (end < inner.size() && name_letter(inner[end])) ++end;
  const std::string name(inner.substr(0, end));
  std::string_view rest = inner.substr(end);
  const std::string as_written = "${" + std::string(inner) + "}";
  if (rest.empty() || rest == "[@]" || rest == "[*]") return value_of(name, as_written);
  if (rest.starts_with(":-") || rest.starts_with('-')) {
    if (const Words* const value = variables_.find(name, text_)) return *value;
    rest.remove_prefix(rest.starts_with(":-") ? 2 : 1);
    return {expanded(rest)};
  }
  return {as_written};
}

// Returns the text of a default or of arithmetic, with its own variables put in.
std::string ShellExpansions::expanded(std::string_view text) {
  if (++nested_ > deepest) text_.fail(detail::concat("expansions are nested deeper than ", deepest));
  ShellText inner = text_.within(text);
  ShellExpansions expansions(inner, variables_, nested_);
  std::string result;
  while (!inner.at_end()) {
    if (inner.now() == '"' || inner.now() == '\'')
      inner.skip();
    else if (inner.now() == '$')
      result += join(expansions.read(), " ");
    else
      result += inner.take();
  }
  --nested_;
  return result;
}

std::string ShellExpansions::arithmetic(std::string_view written) {
  WholeSum sum;
  std::string number;
  for (const char c : expanded(written) + "+") {
    if (blank(c)) continue;
    if (name_letter(c)) {
      number += c;
      continue;
    }
    if (const Words* const value = variables_.find(number, text_)) number = join(*value, " ");
    if (!sum.add(number, c)) return "$((" + std::string(written) + "))";
    if (sum.too_large()) text_.fail("a number is too large");
    number.clear();
  }
  return std::to_string(sum.value());
}

Words ShellExpansions::read() {
  const std::size_t begin = text_.at();
  if (text_.take() == '`') {
    const std::size_t length = text_.rest().find('`');
    text_.skip(std::min(length, text_.rest().size() - 1) + 1);
    return {std::string(text_.since(begin))};
  }
  if (text_.starts("((")) {
    text_.skip(2);
    const std::string_view inner = text_.inside('(', ')');
    if (text_.now() == ')') text_.skip();
    return {arithmetic(inner)};
  }
  if (text_.now() == '(') {
    text_.skip();
    text_.inside('(', ')');
    return {std::string(text_.since(begin))};
  }
  if (text_.now() == '{') {
    text_.skip();
    return braced(text_.inside('{', '}'));
  }
  const std::string name = read_name();
  return name.empty() ? Words{"$"} : value_of(name, "$" + name);
}

std::optional<Words> ShellExpansions::read_elements() {
  if (text_.starts("\"$@\"")) {
    text_.skip(4);
    return Words();
  }
  if (!text_.starts("\"${")) return {};
  const std::size_t begin = text_.at();
  text_.skip(3);
  const std::string name(text_.take_name());
  if (!text_.starts("[@]}\"")) {
    text_.go_to(begin);
    return {};
  }
  text_.skip(5);
  const Words* const value = variables_.find(name, text_);
  return value ? *value : Words();
}

}  // namespace prun::convert
