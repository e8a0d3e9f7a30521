// Parses the statements of a template, around its expressions.
#include <algorithm>

#include "chat/expressions.hpp"
#include "chat/syntax.hpp"
#include "chat/tokens.hpp"

namespace prun::chat {
namespace {

class Parser {
 public:
  explicit Parser(WordReader words) : words_(std::move(words)) {}

  Block parse() {
    Block block = read_block({});
    if (words_.now().kind != WordKind::end) words_.refuse("there is an end without its beginning");
    return block;
  }

 private:
  // Reads up to a block that begins with one of these names, which it leaves.
  Block read_block(std::initializer_list<std::string_view> ends) {
    const WordReader::Deeper deeper(words_);
    Block block;
    for (;;) {
      if (words_.now().kind == WordKind::text) {
        Statement& text = begin(block, StatementKind::text);
        text.text = words_.take().text;
      } else if (words_.now().kind == WordKind::begin_output) {
        Statement& output = begin(block, StatementKind::output);
        words_.take();
        output.expressions.push_back(read_expression(words_));
        expect(WordKind::end_output);
      } else if (words_.now().kind == WordKind::begin_block) {
        if (std::find(ends.begin(), ends.end(), words_.next().text) != ends.end()) return block;
        if (words_.next().text.starts_with("end"))
          words_.refuse("'" + words_.next().text + "' has no beginning");
        read_statement(block);
      } else {
        if (ends.size() != 0) words_.refuse("'" + std::string(*(ends.end() - 1)) + "' is missing");
        return block;
      }
    }
  }

  Statement& begin(Block& block, StatementKind kind) const {
    Statement& statement = block.statements.emplace_back();
    statement.kind = kind;
    statement.line = words_.now().line;
    return statement;
  }
  void expect(WordKind kind) {
    if (words_.now().kind != kind) words_.refuse("'" + words_.now().text + "' is not expected here");
    words_.take();
  }
  void end_block(std::string_view name) {
    expect(WordKind::begin_block);
    if (!words_.pass_name(name)) words_.refuse("'" + std::string(name) + "' is missing");
    expect(WordKind::end_block);
  }

  void read_statement(Block& block) {
    words_.take();
    const std::string name = words_.take_name();
    if (name == "if") return read_branch(begin(block, StatementKind::branch));
    if (name == "for") return read_loop(begin(block, StatementKind::loop));
    if (name == "set") return read_set(begin(block, StatementKind::set));
    if (name == "macro") return read_macro(begin(block, StatementKind::macro));
    if (name == "generation") {
      if (captures_ > 0)
        words_.refuse("'generation' in a macro or a set is not something that prun has in templates");
      return read_body(begin(block, StatementKind::generation), "endgeneration");
    }
    if (name != "break" && name != "continue")
      words_.refuse("'" + name +
                    "' is a statement that prun does not have in templates; it has if, for, set, macro, "
                    "generation, break and continue");
    begin(block, name == "break" ? StatementKind::leave : StatementKind::go_on);
    expect(WordKind::end_block);
  }

  void read_body(Statement& statement, std::string_view end) {
    expect(WordKind::end_block);
    ++scopes_;
    statement.blocks.push_back(read_block({end}));
    --scopes_;
    end_block(end);
  }

  // Reads what is written to a value, not to the text.
  void read_captured(Statement& statement, std::string_view end) {
    ++captures_;
    read_body(statement, end);
    --captures_;
  }

  void read_branch(Statement& branch) {
    branch.expressions.push_back(read_expression(words_));
    for (;;) {
      expect(WordKind::end_block);
      branch.blocks.push_back(read_block({"elif", "else", "endif"}));
      expect(WordKind::begin_block);
      if (words_.pass_name("elif")) {
        branch.expressions.push_back(read_expression(words_));
      } else if (words_.pass_name("else")) {
        expect(WordKind::end_block);
        branch.expressions.push_back(nullptr);
        branch.blocks.push_back(read_block({"endif"}));
        return end_block("endif");
      } else {
        words_.take();
        return expect(WordKind::end_block);
      }
    }
  }

  void read_loop(Statement& loop) {
    do loop.names.push_back(words_.take_name());
    while (words_.pass_sign(","));
    if (!words_.pass_name("in")) words_.refuse("'in' is missing");
    loop.expressions.push_back(read_or(words_));
    loop.expressions.push_back(words_.pass_name("if") ? read_expression(words_) : nullptr);
    if (words_.is_name("recursive")) words_.refuse("'recursive' is not something that prun has in templates");
    expect(WordKind::end_block);
    ++scopes_;
    loop.blocks.push_back(read_block({"else", "endfor"}));
    --scopes_;
    expect(WordKind::begin_block);
    if (words_.pass_name("else")) return read_body(loop, "endfor");
    words_.take();
    expect(WordKind::end_block);
  }

  void read_set(Statement& set) {
    do set.names.push_back(words_.take_name());
    while (words_.pass_sign(","));
    if (set.names.size() == 1 && words_.pass_sign(".")) set.member = words_.take_name();
    if (words_.pass_sign("=")) {
      set.expressions.push_back(read_row_of_values());
      return expect(WordKind::end_block);
    }
    if (set.names.size() > 1 || words_.is_sign("|"))
      words_.refuse("such a 'set' without '=' is not something that prun has in templates");
    set.kind = StatementKind::capture;
    read_captured(set, "endset");
  }

  // Several values with commas between them are a tuple.
  ExpressionPointer read_row_of_values() {
    ExpressionPointer first = read_expression(words_);
    if (!words_.is_sign(",")) return first;
    auto tuple = make_expression(words_, ExpressionKind::tuple);
    add_part(*tuple, words_, std::move(first));
    while (words_.pass_sign(",") && words_.now().kind != WordKind::end_block)
      add_part(*tuple, words_, read_expression(words_));
    return tuple;
  }

  // Macros are at the top, where the names that they see live as long as they do.
  void read_macro(Statement& macro) {
    if (scopes_ > 0)
      words_.refuse("a macro in a loop or another macro is not something that prun has in templates");
    macro.text = words_.take_name();
    words_.expect_sign("(");
    while (!words_.is_sign(")")) {
      macro.names.push_back(words_.take_name());
      macro.expressions.push_back(words_.pass_sign("=") ? read_expression(words_) : nullptr);
      if (!words_.pass_sign(",")) break;
    }
    words_.expect_sign(")");
    read_captured(macro, "endmacro");
  }

  // Around what is read.
  int scopes_ = 0, captures_ = 0;
  WordReader words_;
};

}  // namespace

Block parse_template(std::string_view text, const std::string& name) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  if (text.size() > longest)
    throw_error(ErrorCode::bad_input, name, " has ", text.size(),
                " bytes; a template of conversations has at most ", longest);
  return Parser({words_of_template(text, name), name}).parse();
}

}  // namespace prun::chat
