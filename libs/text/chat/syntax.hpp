// Parses a template of conversations: the part of Jinja that chat templates are made of. What is not part of
// it is refused by its name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/value.hpp"

namespace prun::chat {

struct Expression;
using ExpressionPointer = std::unique_ptr<const Expression>;

enum class ExpressionKind : std::uint8_t {
  literal,
  name,
  list,
  tuple,
  dict,         // parts: key, value, key, value, ...
  item,         // parts: of, key
  attribute,    // `text` of parts[0]
  slice,        // parts: of, first, last, step; null where they are left out
  call,         // of a function or macro `text`: parts are arguments
  method,       // `text` of parts[0]: the others are arguments
  filter,       // `text` of parts[0]: likewise
  test,         // `text` of parts[0]: likewise
  unary,        // `text`: not, -, +
  binary,       // `text`: an operator
  comparison,   // parts, with an operator of `signs` between two each
  conditional,  // parts: value, condition, otherwise or null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 0;
  std::string text;
  Value value;
  std::vector<ExpressionPointer> parts;
  std::vector<std::pair<std::string, ExpressionPointer>> named;  // arguments
  std::vector<std::string> signs;
  int depth = 1;  // of expressions in one another, which evaluation follows
};

struct Block;

enum class StatementKind : std::uint8_t {
  text,
  output,
  branch,
  loop,
  set,
  capture,  // a set of what its body writes
  macro,
  generation,
  leave,
  go_on
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string text;                // text; of a macro its name
  std::string member;              // of the namespace names[0], where one of its is set
  std::vector<std::string> names;  // of a loop's items, of what is set, of a macro's arguments
  // output, set and loop have one; branch has conditions, null for else; macro has one for each name: what it
  // is where no argument is given, or null.
  std::vector<ExpressionPointer> expressions;
  std::vector<Block> blocks;  // branch: one each; loop: body, else; capture, macro, generation: body
};

struct Block {
  std::vector<Statement> statements;
};

// `name` is the template's in messages. Throws bad_input with name and line; a text of more than a MiB is
// refused.
Block parse_template(std::string_view text, const std::string& name);

}  // namespace prun::chat
