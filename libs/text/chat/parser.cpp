// Parses the statements of a template, around its expressions.
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/syntax.hpp"
#include "chat/tokens.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

// ------------------------------------------------------------------- word reader
// Reads the words of a template one by one, and refuses what is not expected.

class WordReader {
 public:
  // `name` is the template's in messages, and outlives this.
  WordReader(std::vector<Word> words, const std::string& name) : words_(std::move(words)), name_(name) {}

  const Word& now() const { return words_[at_]; }
  const Word& next() const { return words_[std::min(at_ + 1, words_.size() - 1)]; }
  Word take() { return words_[at_ + 1 < words_.size() ? at_++ : at_]; }
  bool is_sign(std::string_view sign) const { return now().kind == WordKind::sign && now().text == sign; }
  bool is_name(std::string_view name) const { return now().kind == WordKind::name && now().text == name; }
  bool pass_sign(std::string_view sign) { return is_sign(sign) && (take(), true); }
  bool pass_name(std::string_view name) { return is_name(name) && (take(), true); }
  bool is_next_sign(std::string_view sign) const {
    return next().kind == WordKind::sign && next().text == sign;
  }
  void expect_sign(std::string_view sign) {
    if (!pass_sign(sign)) refuse("'" + std::string(sign) + "' is missing before '" + now().text + "'");
  }
  std::string take_name() {
    if (now().kind != WordKind::name) refuse("a name is missing before '" + now().text + "'");
    return take().text;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(ErrorCode::bad_input, name_, ":", now().line, ": ", what);
  }

  // Counts how deep it is while it lives.
  class Deeper {
   public:
    explicit Deeper(WordReader& words) : words_(words) {
      if (++words_.depth_ > deepest) words_.refuse("it is nested too deeply");
    }
    ~Deeper() { --words_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    WordReader& words_;
  };

 private:
  static constexpr int deepest = 200;

  std::vector<Word> words_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// ------------------------------------------------------------------- expressions
// Parses the expressions of a template.
// Binds as Jinja does: conditional, or, and, not, comparisons, + and -, ~, * and others, **, signs.

// Reads one without `if`, which means something else behind what a loop goes through.
ExpressionPointer read_or(WordReader& words);
// Reads what operators stand between.
ExpressionPointer read_operand(WordReader& words);

// Makes one at the word at hand.
inline std::unique_ptr<Expression> make_expression(const WordReader& words, ExpressionKind kind,
                                                   std::string text = {}) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = words.now().line;
  made->text = std::move(text);
  return made;
}
// Rows of operators nest as parentheses do: an expression that evaluation cannot follow down is refused.
inline ExpressionPointer placed_in(Expression& outer, const WordReader& words, ExpressionPointer part) {
  constexpr int deepest = 500;
  if (part && (outer.depth = std::max(outer.depth, part->depth + 1)) > deepest)
    words.refuse("it is nested too deeply");
  return part;
}
inline void add_part(Expression& outer, const WordReader& words, ExpressionPointer part) {
  outer.parts.push_back(placed_in(outer, words, std::move(part)));
}
template <class... Parts>
ExpressionPointer joined(const WordReader& words, ExpressionKind kind, std::string text, Parts... parts) {
  auto made = make_expression(words, kind, std::move(text));
  (add_part(*made, words, std::move(parts)), ...);
  return made;
}

template <class Below>
ExpressionPointer read_row(WordReader& words, std::initializer_list<const char*> signs, Below&& below) {
  ExpressionPointer left = below();
  for (;;) {
    const auto sign =
        std::find_if(signs.begin(), signs.end(), [&](const char* one) { return words.is_sign(one); });
    if (sign == signs.end()) return left;
    words.take();
    left = joined(words, ExpressionKind::binary, *sign, std::move(left), below());
  }
}

ExpressionPointer read_product(WordReader& words) {
  return read_row(words, {"*", "//", "%", "/"},
                  [&] { return read_row(words, {"**"}, [&] { return read_operand(words); }); });
}

ExpressionPointer read_sum(WordReader& words) {
  return read_row(words, {"+", "-"},
                  [&] { return read_row(words, {"~"}, [&] { return read_product(words); }); });
}

std::string take_comparison(WordReader& words) {
  for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
    if (words.pass_sign(sign)) return sign;
  if (words.pass_name("in")) return "in";
  if (!words.is_name("not") || words.next().text != "in") return "";
  words.take();
  words.take();
  return "not in";
}

ExpressionPointer read_comparison(WordReader& words) {
  ExpressionPointer left = read_sum(words);
  std::string sign = take_comparison(words);
  if (sign.empty()) return left;
  auto made = make_expression(words, ExpressionKind::comparison);
  add_part(*made, words, std::move(left));
  for (; !sign.empty(); sign = take_comparison(words)) {
    made->signs.push_back(sign);
    add_part(*made, words, read_sum(words));
  }
  return made;
}

ExpressionPointer read_not(WordReader& words) {
  const WordReader::Deeper deeper(words);
  if (words.pass_name("not")) return joined(words, ExpressionKind::unary, "not", read_not(words));
  return read_comparison(words);
}

ExpressionPointer read_and(WordReader& words) {
  ExpressionPointer left = read_not(words);
  while (words.pass_name("and"))
    left = joined(words, ExpressionKind::binary, "and", std::move(left), read_not(words));
  return left;
}

ExpressionPointer read_expression(WordReader& words) {
  const WordReader::Deeper deeper(words);
  ExpressionPointer value = read_or(words);
  while (words.pass_name("if")) {
    ExpressionPointer condition = read_or(words), otherwise;
    if (words.pass_name("else")) otherwise = read_expression(words);
    value = joined(words, ExpressionKind::conditional, "", std::move(value), std::move(condition),
                   std::move(otherwise));
  }
  return value;
}

ExpressionPointer read_or(WordReader& words) {
  ExpressionPointer left = read_and(words);
  while (words.pass_name("or"))
    left = joined(words, ExpressionKind::binary, "or", std::move(left), read_and(words));
  return left;
}

// ------------------------------------------------------------------- parser

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

// ------------------------------------------------------------------- operands
// Parses what operators stand between: a literal, a name, a list, a dict or what is in parentheses; and what
// binds to that: attributes, items, calls, filters, tests.

ExpressionPointer literal(WordReader& words, Value value) {
  auto made = make_expression(words, ExpressionKind::literal);
  made->value = std::move(value);
  words.take();
  return made;
}

ExpressionPointer read_name(WordReader& words, const std::string& name) {
  if (name == "true" || name == "True") return literal(words, Value(true));
  if (name == "false" || name == "False") return literal(words, Value(false));
  if (name == "none" || name == "None") return literal(words, Value(nullptr));
  auto made = make_expression(words, ExpressionKind::name, name);
  words.take();
  return made;
}

// Reads a row of expressions up to what ends it, which it leaves.
void read_parts(WordReader& words, Expression& list, std::string_view end) {
  while (!words.is_sign(end)) {
    add_part(list, words, read_expression(words));
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign(end);
}

ExpressionPointer read_list(WordReader& words) {
  auto list = make_expression(words, ExpressionKind::list);
  words.take();
  read_parts(words, *list, "]");
  return list;
}

ExpressionPointer read_parentheses(WordReader& words) {
  auto tuple = make_expression(words, ExpressionKind::tuple);
  words.take();
  if (words.pass_sign(")")) return tuple;
  ExpressionPointer inner = read_expression(words);
  if (words.pass_sign(")")) return inner;
  words.expect_sign(",");
  add_part(*tuple, words, std::move(inner));
  read_parts(words, *tuple, ")");
  return tuple;
}

ExpressionPointer read_dict(WordReader& words) {
  auto dict = make_expression(words, ExpressionKind::dict);
  words.take();
  while (!words.is_sign("}")) {
    add_part(*dict, words, read_expression(words));
    words.expect_sign(":");
    add_part(*dict, words, read_expression(words));
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign("}");
  return dict;
}

ExpressionPointer read_number(WordReader& words) {
  const Word word = words.now();
  if (word.text.size() > 15) words.refuse("the number " + word.text + " is too long");
  if (word.kind == WordKind::number)
    return literal(words, Value(static_cast<std::int64_t>(std::stoll(word.text))));
  double number = 0;
  std::from_chars(word.text.data(), word.text.data() + word.text.size(), number);
  return literal(words, Value(number));
}

ExpressionPointer read_single(WordReader& words) {
  const Word& word = words.now();
  if (word.kind == WordKind::string) {
    auto text = make_expression(words, ExpressionKind::literal);
    std::string all;
    while (words.now().kind == WordKind::string) all += words.take().text;
    text->value = Value(all);
    return text;
  }
  if (word.kind == WordKind::number || word.kind == WordKind::fraction) return read_number(words);
  if (word.kind == WordKind::name) return read_name(words, word.text);
  if (words.is_sign("(")) return read_parentheses(words);
  if (words.is_sign("[")) return read_list(words);
  if (words.is_sign("{")) return read_dict(words);
  words.refuse("'" + word.text + "' is not expected here");
}

void read_arguments(WordReader& words, Expression& call) {
  words.expect_sign("(");
  while (!words.is_sign(")")) {
    if (words.now().kind == WordKind::name && words.is_next_sign("=")) {
      std::string name = words.take_name();
      words.take();
      call.named.emplace_back(std::move(name), placed_in(call, words, read_expression(words)));
    } else {
      add_part(call, words, read_expression(words));
    }
    if (!words.pass_sign(",")) break;
  }
  words.expect_sign(")");
}

ExpressionPointer read_attribute(WordReader& words, ExpressionPointer of) {
  if (words.now().kind == WordKind::number)
    return joined(words, ExpressionKind::item, "", std::move(of), read_number(words));
  const std::string name = words.take_name();
  const bool is_call = words.is_sign("(");
  auto made = make_expression(words, is_call ? ExpressionKind::method : ExpressionKind::attribute, name);
  add_part(*made, words, std::move(of));
  if (is_call) read_arguments(words, *made);
  return made;
}

ExpressionPointer read_item(WordReader& words, ExpressionPointer of) {
  words.take();
  ExpressionPointer first = words.is_sign(":") ? nullptr : read_expression(words);
  if (words.pass_sign("]")) return joined(words, ExpressionKind::item, "", std::move(of), std::move(first));
  ExpressionPointer last, step;
  words.expect_sign(":");
  if (!words.is_sign(":") && !words.is_sign("]")) last = read_expression(words);
  if (words.pass_sign(":") && !words.is_sign("]")) step = read_expression(words);
  words.expect_sign("]");
  return joined(words, ExpressionKind::slice, "", std::move(of), std::move(first), std::move(last),
                std::move(step));
}

// Attributes, items and calls bind from left to right.
ExpressionPointer read_tail(WordReader& words, ExpressionPointer of) {
  for (;;) {
    if (words.pass_sign(".")) {
      of = read_attribute(words, std::move(of));
    } else if (words.is_sign("[")) {
      of = read_item(words, std::move(of));
    } else if (words.is_sign("(")) {
      if (of->kind != ExpressionKind::name)
        words.refuse("a call of what is no name is not something that prun has in templates");
      auto call = make_expression(words, ExpressionKind::call, of->text);
      read_arguments(words, *call);
      of = std::move(call);
    } else {
      return of;
    }
  }
}

// Reads one with signs in front, without filters.
ExpressionPointer read_signed(WordReader& words) {
  const WordReader::Deeper deeper(words);
  for (const char* sign : {"-", "+"})
    if (words.pass_sign(sign))
      return read_tail(words, joined(words, ExpressionKind::unary, sign, read_signed(words)));
  return read_tail(words, read_single(words));
}

// Says whether an argument stands behind a test's name without parentheses.
bool begins_argument(const WordReader& words) {
  const Word& word = words.now();
  if (word.kind == WordKind::name)
    return word.text != "else" && word.text != "or" && word.text != "and" && word.text != "if" &&
           word.text != "is" && word.text != "in" && word.text != "not";
  return word.kind == WordKind::string || word.kind == WordKind::number || word.kind == WordKind::fraction ||
         words.is_sign("[") || words.is_sign("{");
}

ExpressionPointer read_test(WordReader& words, ExpressionPointer of) {
  const bool negated = words.pass_name("not");
  auto test = make_expression(words, ExpressionKind::test, words.take_name());
  add_part(*test, words, std::move(of));
  if (words.is_sign("("))
    read_arguments(words, *test);
  else if (begins_argument(words))
    add_part(*test, words, read_tail(words, read_single(words)));
  if (!negated) return test;
  return joined(words, ExpressionKind::unary, "not", ExpressionPointer(std::move(test)));
}

// Filters and tests bind to what its signs have been put in front of.
ExpressionPointer read_operand(WordReader& words) {
  ExpressionPointer of = read_signed(words);
  for (;;) {
    if (words.pass_sign("|")) {
      auto filter = make_expression(words, ExpressionKind::filter, words.take_name());
      add_part(*filter, words, std::move(of));
      if (words.is_sign("(")) read_arguments(words, *filter);
      of = std::move(filter);
    } else if (words.pass_name("is")) {
      of = read_test(words, std::move(of));
    } else {
      return of;
    }
  }
}

}  // namespace

Block parse_template(std::string_view text, const std::string& name) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  if (text.size() > longest)
    throw_error(ErrorCode::bad_input, name, " has ", text.size(),
                " bytes; a template of conversations has at most ", longest);
  return Parser({words_of_template(text, name), name}).parse();
}

}  // namespace prun::chat
