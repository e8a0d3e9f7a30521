// Represents a recipe as written: a tree of tables, lists and scalars that knows where each part stands.
// Nothing in it has been checked against a schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/diagnostics.hpp"

namespace prun::recipe {

struct Member;

struct Node {
  enum class Kind : std::uint8_t {
    table,
    list,
    integer,
    real,
    boolean,
    string,
    date,
    bare,  // text of a --set: the schema decides its type
  };

  Kind kind = Kind::table;
  Location at;                  // place of a table's header, or of the value
  std::vector<Member> members;  // members of a table, in the order they were written
  std::vector<Node> items;      // items of a list
  std::int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::string text;  // text of a string or bare value

  const Member* find(std::string_view key) const;
  Member* find(std::string_view key);
};

struct Member {
  std::string key;
  Location at;
  Node value;
};

// Returns the words that messages use: "int", "table", ...
std::string_view describe(Node::Kind kind);
// Does the same, but returns the text itself if the type is still open.
std::string describe(const Node& node);

// Puts `above` over `below`, key by key: tables merge, everything else is replaced, including lists and
// tables of a list. Keys that only one has are kept; those of `below` come first.
void merge_over(Node& below, Node above);

}  // namespace prun::recipe
