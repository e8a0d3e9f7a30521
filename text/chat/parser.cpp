// Binds as Jinja does: conditional, or, and, not, comparisons, + and -, ~, * and others, signs; and to what
// stands alone: attributes, items, calls, filters, tests.
#include <algorithm>
#include <array>

#include "chat/syntax.hpp"
#include "chat/tokens.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

constexpr int deepest = 200;

// Parses words, and the expressions that they make.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Word> words, const std::string& name)
      : words_(std::move(words)), name_(name) {}

 protected:
  // --- words

  const Word& now() const { return words_[at_]; }
  const Word& next() const { return words_[std::min(at_ + 1, words_.size() - 1)]; }
  Word take() { return words_[at_ + 1 < words_.size() ? at_++ : at_]; }
  bool is_sign(std::string_view sign) const { return now().kind == WordKind::sign && now().text == sign; }
  bool is_name(std::string_view name) const { return now().kind == WordKind::name && now().text == name; }
  bool pass_sign(std::string_view sign) { return is_sign(sign) && (take(), true); }
  bool pass_name(std::string_view name) { return is_name(name) && (take(), true); }
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
    explicit Deeper(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > deepest) parser_.refuse("it is nested too deeply");
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExpressionParser& parser_;
  };

  ExpressionPointer read_expression() {
    const Deeper deeper(*this);
    ExpressionPointer value = read_or();
    while (pass_name("if")) {
      ExpressionPointer condition = read_or(), otherwise;
      if (pass_name("else")) otherwise = read_expression();
      value = joined(ExpressionKind::conditional, "", std::move(value), std::move(condition),
                     std::move(otherwise));
    }
    return value;
  }

  ExpressionPointer read_or() {
    ExpressionPointer left = read_and();
    while (pass_name("or")) left = joined(ExpressionKind::binary, "or", std::move(left), read_and());
    return left;
  }

 private:
  // --- expressions

  std::unique_ptr<Expression> make(ExpressionKind kind, std::string text = {}) const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = now().line;
    made->text = std::move(text);
    return made;
  }
  template <class... Parts>
  ExpressionPointer joined(ExpressionKind kind, std::string text, Parts... parts) const {
    auto made = make(kind, std::move(text));
    (made->parts.push_back(std::move(parts)), ...);
    return made;
  }

  ExpressionPointer read_and() {
    ExpressionPointer left = read_not();
    while (pass_name("and")) left = joined(ExpressionKind::binary, "and", std::move(left), read_not());
    return left;
  }
  ExpressionPointer read_not() {
    const Deeper deeper(*this);
    if (pass_name("not")) return joined(ExpressionKind::unary, "not", read_not());
    return read_comparison();
  }

  std::string take_comparison() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
      if (pass_sign(sign)) return sign;
    if (pass_name("in")) return "in";
    if (!is_name("not") || next().text != "in") return "";
    take();
    take();
    return "not in";
  }

  ExpressionPointer read_comparison() {
    ExpressionPointer left = read_sum();
    const std::string sign = take_comparison();
    if (sign.empty()) return left;
    left = joined(ExpressionKind::binary, sign, std::move(left), read_sum());
    if (!take_comparison().empty())
      refuse("comparisons in a row are not something that prun has in templates");
    return left;
  }

  template <class Below>
  ExpressionPointer read_row(std::initializer_list<const char*> signs, Below&& below) {
    ExpressionPointer left = below();
    for (;;) {
      const auto sign =
          std::find_if(signs.begin(), signs.end(), [&](const char* one) { return is_sign(one); });
      if (sign == signs.end()) return left;
      take();
      left = joined(ExpressionKind::binary, *sign, std::move(left), below());
    }
  }
  ExpressionPointer read_sum() {
    return read_row({"+", "-"}, [&] { return read_row({"~"}, [&] { return read_product(); }); });
  }
  ExpressionPointer read_product() {
    return read_row({"*", "//", "%", "/", "**"}, [&] { return read_signed(); });
  }

  ExpressionPointer read_signed() {
    const Deeper deeper(*this);
    if (pass_sign("-")) return joined(ExpressionKind::unary, "-", read_signed());
    return read_tail(read_single());
  }

  ExpressionPointer read_single() {
    const Word word = now();
    if (word.kind == WordKind::string) {
      auto text = make(ExpressionKind::literal);
      std::string all;
      while (now().kind == WordKind::string) all += take().text;
      text->value = Value(all);
      return text;
    }
    if (word.kind == WordKind::number) {
      if (word.text.size() > 15) refuse("the number " + word.text + " is too large");
      return literal(Value(static_cast<std::int64_t>(std::stoll(word.text))));
    }
    if (word.kind == WordKind::name) return read_name(word.text);
    if (pass_sign("(")) {
      ExpressionPointer inner = read_expression();
      if (is_sign(",")) refuse("a tuple is not something that prun has in templates; write a list");
      expect_sign(")");
      return inner;
    }
    if (is_sign("[")) return read_list();
    if (is_sign("{")) return read_dict();
    refuse("'" + word.text + "' is not expected here");
  }

  ExpressionPointer literal(Value value) {
    auto made = make(ExpressionKind::literal);
    made->value = std::move(value);
    take();
    return made;
  }

  ExpressionPointer read_name(const std::string& name) {
    if (name == "true" || name == "True") return literal(Value(true));
    if (name == "false" || name == "False") return literal(Value(false));
    if (name == "none" || name == "None") return literal(Value(nullptr));
    auto made = make(ExpressionKind::name, name);
    take();
    return made;
  }

  ExpressionPointer read_list() {
    auto list = make(ExpressionKind::list);
    take();
    while (!is_sign("]")) {
      list->parts.push_back(read_expression());
      if (!pass_sign(",")) break;
    }
    expect_sign("]");
    return list;
  }

  ExpressionPointer read_dict() {
    auto dict = make(ExpressionKind::dict);
    take();
    while (!is_sign("}")) {
      dict->parts.push_back(read_expression());
      expect_sign(":");
      dict->parts.push_back(read_expression());
      if (!pass_sign(",")) break;
    }
    expect_sign("}");
    return dict;
  }

  // Attributes, items, calls, filters and tests, from left to right.
  ExpressionPointer read_tail(ExpressionPointer of) {
    for (;;) {
      if (pass_sign(".")) {
        of = read_attribute(std::move(of));
      } else if (is_sign("[")) {
        of = read_item(std::move(of));
      } else if (is_sign("(")) {
        if (of->kind != ExpressionKind::name)
          refuse("a call of what is no name is not something that prun has in templates");
        auto call = make(ExpressionKind::call, of->text);
        read_arguments(*call);
        of = std::move(call);
      } else if (pass_sign("|")) {
        auto filter = make(ExpressionKind::filter, take_name());
        filter->parts.push_back(std::move(of));
        if (is_sign("(")) read_arguments(*filter);
        of = std::move(filter);
      } else if (pass_name("is")) {
        const bool negated = pass_name("not");
        of = joined(ExpressionKind::test, take_name(), std::move(of));
        if (is_sign("(")) refuse("a test with arguments is not something that prun has in templates");
        if (negated) of = joined(ExpressionKind::unary, "not", std::move(of));
      } else {
        return of;
      }
    }
  }

  ExpressionPointer read_attribute(ExpressionPointer of) {
    const std::string name = now().kind == WordKind::number ? take().text : take_name();
    if (is_sign("(")) {
      auto method = make(ExpressionKind::method, name);
      method->parts.push_back(std::move(of));
      read_arguments(*method);
      return method;
    }
    auto key = make(ExpressionKind::literal);
    key->value = Value(name);
    return joined(ExpressionKind::item, "", std::move(of), ExpressionPointer(std::move(key)));
  }

  ExpressionPointer read_item(ExpressionPointer of) {
    take();
    ExpressionPointer first = is_sign(":") ? nullptr : read_expression();
    if (pass_sign("]")) return joined(ExpressionKind::item, "", std::move(of), std::move(first));
    ExpressionPointer last, step;
    expect_sign(":");
    if (!is_sign(":") && !is_sign("]")) last = read_expression();
    if (pass_sign(":") && !is_sign("]")) step = read_expression();
    expect_sign("]");
    return joined(ExpressionKind::slice, "", std::move(of), std::move(first), std::move(last),
                  std::move(step));
  }

  void read_arguments(Expression& call) {
    expect_sign("(");
    while (!is_sign(")")) {
      if (now().kind == WordKind::name && next().kind == WordKind::sign && next().text == "=") {
        std::string name = take_name();
        take();
        call.named.emplace_back(std::move(name), read_expression());
      } else {
        call.parts.push_back(read_expression());
      }
      if (!pass_sign(",")) break;
    }
    expect_sign(")");
  }

  std::vector<Word> words_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Parses the statements around them.
class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Block parse() {
    Block block = read_block({});
    if (now().kind != WordKind::end) refuse("there is an end without its beginning");
    return block;
  }

 private:
  // Reads up to a block that begins with one of these names, which it leaves.
  Block read_block(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Block block;
    for (;;) {
      if (now().kind == WordKind::text) {
        Statement& text = block.emplace_back();
        text.text = take().text;
      } else if (now().kind == WordKind::begin_output) {
        Statement& output = begin(block, StatementKind::output);
        take();
        output.expressions.push_back(read_expression());
        expect(WordKind::end_output);
      } else if (now().kind == WordKind::begin_block) {
        if (std::find(ends.begin(), ends.end(), next().text) != ends.end()) return block;
        if (next().text.starts_with("end")) refuse("'" + next().text + "' has no beginning");
        read_statement(block);
      } else {
        if (ends.size() != 0) refuse("'" + std::string(*(ends.end() - 1)) + "' is missing");
        return block;
      }
    }
  }

  Statement& begin(Block& block, StatementKind kind) const {
    Statement& statement = block.emplace_back();
    statement.kind = kind;
    statement.line = now().line;
    return statement;
  }
  void expect(WordKind kind) {
    if (now().kind != kind) refuse("'" + now().text + "' is not expected here");
    take();
  }
  void end_block(std::string_view name) {
    expect(WordKind::begin_block);
    if (!pass_name(name)) refuse("'" + std::string(name) + "' is missing");
    expect(WordKind::end_block);
  }

  void read_statement(Block& block) {
    take();
    const std::string name = take_name();
    if (name == "if") return read_branch(begin(block, StatementKind::branch));
    if (name == "for") return read_loop(begin(block, StatementKind::loop));
    if (name == "set") return read_set(begin(block, StatementKind::set));
    if (name == "generation") {
      Statement& generation = begin(block, StatementKind::generation);
      expect(WordKind::end_block);
      generation.blocks.push_back(read_block({"endgeneration"}));
      return end_block("endgeneration");
    }
    if (name != "break" && name != "continue")
      refuse("'" + name +
             "' is a statement that prun does not have in templates; it has if, for, set, "
             "generation, break and continue");
    begin(block, name == "break" ? StatementKind::leave : StatementKind::go_on);
    expect(WordKind::end_block);
  }

  void read_branch(Statement& branch) {
    branch.expressions.push_back(read_expression());
    for (;;) {
      expect(WordKind::end_block);
      branch.blocks.push_back(read_block({"elif", "else", "endif"}));
      expect(WordKind::begin_block);
      if (pass_name("elif")) {
        branch.expressions.push_back(read_expression());
      } else if (pass_name("else")) {
        expect(WordKind::end_block);
        branch.expressions.push_back(nullptr);
        branch.blocks.push_back(read_block({"endif"}));
        return end_block("endif");
      } else {
        take();
        return expect(WordKind::end_block);
      }
    }
  }

  void read_loop(Statement& loop) {
    do loop.names.push_back(take_name());
    while (pass_sign(","));
    if (!pass_name("in")) refuse("'in' is missing");
    loop.expressions.push_back(read_or());
    loop.expressions.push_back(pass_name("if") ? read_expression() : nullptr);
    if (is_name("recursive")) refuse("'recursive' is not something that prun has in templates");
    expect(WordKind::end_block);
    loop.blocks.push_back(read_block({"else", "endfor"}));
    expect(WordKind::begin_block);
    if (pass_name("else")) {
      expect(WordKind::end_block);
      loop.blocks.push_back(read_block({"endfor"}));
      return end_block("endfor");
    }
    take();
    expect(WordKind::end_block);
  }

  void read_set(Statement& set) {
    set.text = take_name();
    if (pass_sign(".")) set.member = take_name();
    if (!pass_sign("=")) refuse("a 'set' without '=' is not something that prun has in templates");
    set.expressions.push_back(read_expression());
    expect(WordKind::end_block);
  }
};

}  // namespace

Block parse_template(std::string_view text, const std::string& name) {
  return Parser(words_of_template(text, name), name).parse();
}

}  // namespace prun::chat
