// Puts single values over a tree.
#include "recipe/overrides.hpp"

#include <charconv>
#include <optional>

#include "base/text.hpp"

namespace prun::recipe {

namespace {

constexpr std::size_t max_override = 64 * 1024;
constexpr std::size_t max_parts = 16;

std::optional<std::size_t> index_of(std::string_view part) {
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || stop != part.data() + part.size()) return std::nullopt;
  return index;
}

std::uint32_t code_points(std::string_view text) {
  std::uint32_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(decode_utf8(text).bytes);
  return count;
}

class Override {
 public:
  Override(const std::shared_ptr<const Source>& source, std::string_view prefix, Diagnostics& diagnostics)
      : source_(source), prefix_(prefix), diagnostics_(diagnostics) {}

  void apply(Node& root) {
    const std::string_view all = std::string_view(source_->text).substr(prefix_.size());
    const std::size_t equals = all.find('=');
    if (all.size() > max_override || !valid_utf8(all)) return refuse("is too long or not UTF-8");
    if (equals == std::string_view::npos) return refuse("has no '='; write section.key=value");
    path_ = trim(all.substr(0, equals));
    value_ = all.substr(equals + 1);
    const std::vector<std::string_view> parts = split(path_, '.');
    if (parts.size() > max_parts)
      return refuse("has a path of more than " + std::to_string(max_parts) + " names");
    Node* node = &root;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool next_is_index = i + 1 < parts.size() && index_of(parts[i + 1]).has_value();
      const bool last = i + 1 == parts.size();
      node = step(*node, parts[i], last, next_is_index);
      if (!node) return;
    }
    *node = bare_value();
  }

 private:
  // Returns the child of `node` that `part` names, made if missing. Only the last one counts as written here.
  Node* step(Node& node, std::string_view part, bool last, bool next_is_index) {
    if (part.empty()) return refuse("has an empty name in its path"), nullptr;
    if (node.kind == Node::Kind::list) return step_into_list(node, part);
    if (node.kind == Node::Kind::bare && trim(node.text) == "{}") node.kind = Node::Kind::table;
    if (node.kind != Node::Kind::table)
      return refuse("goes through a value that is neither table nor list, before " + in_quotes(part)),
             nullptr;
    if (Member* const member = node.find(part)) {
      if (last) member->at = key_place();
      return &member->value;
    }
    Node child;
    child.kind = next_is_index ? Node::Kind::list : Node::Kind::table;
    child.at = key_place();
    node.members.push_back({std::string(part), key_place(), std::move(child)});
    return &node.members.back().value;
  }

  Node* step_into_list(Node& list, std::string_view part) {
    const std::optional<std::size_t> index = index_of(part);
    if (!index) return refuse("needs the index of an item where it says " + in_quotes(part)), nullptr;
    if (*index > list.items.size())
      return refuse("names item " + in_quotes(part) + " of a list of " + std::to_string(list.items.size()) +
                    "; items count from 0, and the next one would be " + std::to_string(list.items.size())),
             nullptr;
    if (*index == list.items.size()) {
      Node item;
      item.at = key_place();
      list.items.push_back(std::move(item));
    }
    return &list.items[*index];
  }

  Node bare_value() const {
    Node node;
    node.kind = Node::Kind::bare;
    node.text = value_;
    const std::uint32_t length = code_points(value_);
    node.at = {source_, 1, code_points(source_->text) - length + 1, std::max(length, 1u)};
    return node;
  }

  Location key_place() const { return {source_, 1, code_points(prefix_) + 1, code_points(path_)}; }

  void refuse(const std::string& reason) {
    const Location at{source_, 1, code_points(prefix_) + 1, 1};
    diagnostics_.add(at, "the override " + reason);
  }

  std::shared_ptr<const Source> source_;
  std::string_view prefix_, path_, value_;
  Diagnostics& diagnostics_;
};

}  // namespace

void apply_override(Node& root, const std::shared_ptr<const Source>& source, std::string_view prefix,
                    Diagnostics& diagnostics) {
  Override(source, prefix, diagnostics).apply(root);
}

}  // namespace prun::recipe
