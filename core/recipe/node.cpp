// Implements the tree of a recipe as written.
#include "recipe/node.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun::recipe {

const Member* Node::find(std::string_view key) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [key](const Member& m) { return m.key == key; });
  return found == members.end() ? nullptr : &*found;
}

Member* Node::find(std::string_view key) {
  const auto found =
      std::find_if(members.begin(), members.end(), [key](const Member& m) { return m.key == key; });
  return found == members.end() ? nullptr : &*found;
}

std::string_view describe(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::table: return "table";
    case Node::Kind::list: return "list";
    case Node::Kind::integer: return "int";
    case Node::Kind::real: return "float";
    case Node::Kind::boolean: return "bool";
    case Node::Kind::string: return "string";
    case Node::Kind::date: return "date or time";
    case Node::Kind::bare: return "text";
  }
  return "?";
}

std::string describe(const Node& node) {
  return node.kind == Node::Kind::bare ? in_quotes(node.text) : std::string(describe(node.kind));
}

void merge_over(Node& below, Node above) {
  if (below.kind != Node::Kind::table || above.kind != Node::Kind::table) {
    below = std::move(above);
    return;
  }
  below.at = std::move(above.at);
  for (Member& member : above.members) {
    Member* const old = below.find(member.key);
    if (!old) {
      below.members.push_back(std::move(member));
      continue;
    }
    old->at = std::move(member.at);
    merge_over(old->value, std::move(member.value));
  }
}

}  // namespace prun::recipe
