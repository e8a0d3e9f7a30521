#include "recipe/toml_writer.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "prun/visible.hpp"
#include "recipe/recipe.hpp"
#include "recipe/toml_reader.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- toml writer

constexpr std::size_t comment_column = 40;

bool is_bare(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string key_of(std::string_view path) {
  std::string key;
  for (const std::string_view name : split(path, '.'))
    key += (key.empty() ? "" : ".") + (is_bare(name) ? std::string(name) : to_toml(Value(std::string(name))));
  return key;
}

std::optional<Value> scalar_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::integer: return Value(node.integer);
    case Node::Kind::real: return Value(node.real);
    case Node::Kind::boolean: return Value(node.boolean);
    case Node::Kind::string: return Value(node.text);
    default: return std::nullopt;
  }
}

// Writes elements of one type; whole numbers among reals are reals.
template <class Element>
std::optional<Value> list_of(const Node& node) {
  std::vector<Element> list;
  for (const Node& item : node.items) {
    const std::optional<Value> one = scalar_of(item);
    if (!one) return std::nullopt;
    if constexpr (std::is_same_v<Element, double>)
      if (const auto* whole = std::get_if<std::int64_t>(&*one)) {
        list.push_back(static_cast<double>(*whole));
        continue;
      }
    const auto* const element = std::get_if<Element>(&*one);
    if (!element) return std::nullopt;
    list.push_back(*element);
  }
  return Value(std::move(list));
}

std::optional<Value> value_of(const Node& node) {
  if (node.kind != Node::Kind::list) return scalar_of(node);
  if (auto whole = list_of<std::int64_t>(node)) return whole;
  if (auto reals = list_of<double>(node)) return reals;
  return list_of<std::string>(node);
}

}  // namespace

TomlWriter& TomlWriter::header(std::string_view path, std::string_view open, std::string_view close) {
  if (!text_.empty()) text_ += '\n';
  text_.append(open).append(key_of(path)).append(close).append("\n");
  return *this;
}

TomlWriter& TomlWriter::table(std::string_view path) { return header(path, "[", "]"); }

TomlWriter& TomlWriter::item(std::string_view path) { return header(path, "[[", "]]"); }

TomlWriter& TomlWriter::value(std::string_view key, const Value& value, std::string_view comment) {
  std::string line = key_of(key) + " = " + to_toml(value);
  if (!comment.empty()) {
    line.resize(std::max(line.size() + 2, comment_column), ' ');
    line += "# " + visible(comment);
  }
  text_ += line + "\n";
  return *this;
}

TomlWriter& TomlWriter::empty_list(std::string_view key) {
  text_ += key_of(key) + " = []\n";
  return *this;
}

TomlWriter& TomlWriter::comment(std::string_view text) {
  for (const std::string_view line : split(text, '\n')) text_ += "# " + visible(line) + "\n";
  return *this;
}

std::optional<Value> value_of_toml(std::string_view text) {
  // A line end would begin another key; one that is written out as \n does not.
  if (text.find_first_of("\r\n") != std::string_view::npos) return std::nullopt;
  Diagnostics diagnostics;
  const auto source =
      std::make_shared<const Source>(Source{"a value", "v = " + std::string(text), 0, Source::Kind::file});
  const std::optional<Node> root = read_toml(source, diagnostics);
  if (!root || root->members.size() != 1) return std::nullopt;
  return value_of(root->members.front().value);
}

// ------------------------------------------------------------------- print
// Writes a resolved recipe as TOML.

std::string Recipe::resolved_toml() const {
  TomlWriter out;
  for (const std::string& name : resolved_->emptied) out.empty_list(name);
  for (const RecipeSection& section : all_sections()) {
    bool begun = false;
    for (const Entry& entry : section.entries()) {
      if (!entry.value) continue;
      if (!std::exchange(begun, true))
        section.label().starts_with("[[") ? out.item(section.name()) : out.table(section.path());
      out.value(entry.key, *entry.value, describe(entry.at));
    }
  }
  return out.text();
}

}  // namespace prun::recipe
