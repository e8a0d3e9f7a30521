#include "chat/template.hpp"

#include <algorithm>

#include "chat/functions.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

constexpr std::size_t most_steps = 2'000'000, longest_text = std::size_t{256} << 20;

// Names as blocks of loops see them, the innermost last.
class Scopes {
 public:
  explicit Scopes(const Dict& outermost) : scopes_{outermost} {}

  const Value* find(const std::string& name) const {
    for (std::size_t i = scopes_.size(); i-- > 0;)
      if (const Value* const found = scopes_[i].find(name)) return found;
    return nullptr;
  }
  void set(const std::string& name, Value value) { scopes_.back().set(name, std::move(value)); }
  void push() { scopes_.emplace_back(); }
  void pop() { scopes_.pop_back(); }

 private:
  std::vector<Dict> scopes_;
};

// Counts the steps of a template, which are bounded, and says what goes wrong with its place.
class Steps {
 public:
  explicit Steps(const std::string& name) : name_(name) {}

  [[noreturn]] void refuse(int line, const std::string& what) const {
    throw_error(ErrorCode::bad_input, name_, ":", line, ": ", what);
  }
  void count(int line) {
    if (++taken_ > most_steps) refuse(line, "the template takes too many steps");
  }
  // What goes wrong in `body` is said with its place.
  template <class Body>
  auto at_line(int line, Body&& body) {
    count(line);
    try {
      return body();
    } catch (const Trouble& trouble) {
      refuse(line, trouble.what);
    }
  }

 private:
  const std::string& name_;
  std::size_t taken_ = 0;
};

// Evaluates expressions, with the values that names have.
class Expressions {
 public:
  Expressions(const Scopes& scopes, Steps& steps) : scopes_(scopes), steps_(steps) {}

  Value evaluate(const Expression& expression) {
    return steps_.at_line(expression.line, [&] { return value_of(expression); });
  }

 private:
  std::vector<Value> all_of(const Expression& expression) {
    std::vector<Value> values;
    for (const ExpressionPointer& part : expression.parts)
      values.push_back(part ? evaluate(*part) : Value(nullptr));
    return values;
  }
  Named named_of(const Expression& expression) {
    Named named;
    for (const auto& [name, part] : expression.named) named.emplace_back(name, evaluate(*part));
    return named;
  }

  Value value_of(const Expression& expression) {
    switch (expression.kind) {
      case ExpressionKind::literal: return expression.value;
      case ExpressionKind::name: return named_value(expression.text);
      case ExpressionKind::list: return Value::of(all_of(expression));
      case ExpressionKind::dict: return dict_of(expression);
      case ExpressionKind::item:
        return item_of(evaluate(*expression.parts[0]), evaluate(*expression.parts[1]));
      case ExpressionKind::slice: return slice_of(expression);
      case ExpressionKind::call:
        return call_function(expression.text, all_of(expression), named_of(expression));
      case ExpressionKind::method: {
        const std::vector<Value> values = all_of(expression);
        if (!expression.named.empty())
          throw Trouble{"a method is given arguments by name, which prun does not have in templates"};
        return call_method(expression.text, values[0], std::span(values).subspan(1));
      }
      case ExpressionKind::filter:
        return call_filter(expression.text, all_of(expression), named_of(expression));
      case ExpressionKind::test: return {passes_test(expression.text, evaluate(*expression.parts[0]))};
      case ExpressionKind::unary: return unary(expression);
      case ExpressionKind::binary: return binary(expression);
      case ExpressionKind::conditional: break;
    }
    if (evaluate(*expression.parts[1]).is_true()) return evaluate(*expression.parts[0]);
    return expression.parts[2] ? evaluate(*expression.parts[2]) : Value();
  }

  // Of functions it is asked whether they are defined.
  Value named_value(const std::string& name) const {
    if (const Value* const found = scopes_.find(name)) return *found;
    for (const char* function : {"raise_exception", "strftime_now", "namespace", "range"})
      if (name == function) return {true};
    return {Undefined{name}};
  }

  Value dict_of(const Expression& expression) {
    Dict dict;
    for (std::size_t i = 0; i < expression.parts.size(); i += 2)
      dict.set(text_of(evaluate(*expression.parts[i])), evaluate(*expression.parts[i + 1]));
    return Value::of(std::move(dict));
  }

  // Returns where a slice ends, out of `size` items.
  std::size_t bound(const ExpressionPointer& part, std::size_t size, std::size_t otherwise) {
    if (!part) return otherwise;
    const Value value = evaluate(*part);
    const auto* const number = value.as<std::int64_t>();
    if (!number) throw Trouble{"a slice takes whole numbers"};
    const auto whole = static_cast<std::int64_t>(size);
    return static_cast<std::size_t>(
        std::clamp(*number < 0 ? *number + whole : *number, std::int64_t{0}, whole));
  }

  Value slice_of(const Expression& expression) {
    const Value of = evaluate(*expression.parts[0]);
    const List* const list = of.list();
    if (!list)
      throw Trouble{std::string("a slice of ") + of.kind() + " is not something that prun has in templates"};
    if (expression.parts[3]) {
      const Value step = evaluate(*expression.parts[3]);
      const bool turned = step.as<std::int64_t>() && *step.as<std::int64_t>() == -1;
      if (!turned || expression.parts[1] || expression.parts[2])
        throw Trouble{"a slice with a step other than [::-1] is not something that prun has in templates"};
      return Value::of(List(list->rbegin(), list->rend()));
    }
    const std::size_t begin = bound(expression.parts[1], list->size(), 0);
    const std::size_t end = std::max(begin, bound(expression.parts[2], list->size(), list->size()));
    return Value::of(List(list->begin() + static_cast<std::ptrdiff_t>(begin),
                          list->begin() + static_cast<std::ptrdiff_t>(end)));
  }

  Value unary(const Expression& expression) {
    const Value value = evaluate(*expression.parts[0]);
    if (expression.text == "not") return {!value.is_true()};
    return apply_binary("-", Value(std::int64_t{0}), value);
  }

  Value binary(const Expression& expression) {
    Value left = evaluate(*expression.parts[0]);
    if (expression.text == "and" && !left.is_true()) return left;
    if (expression.text == "or" && left.is_true()) return left;
    Value right = evaluate(*expression.parts[1]);
    if (expression.text == "and" || expression.text == "or") return right;
    return apply_binary(expression.text, left, right);
  }

  const Scopes& scopes_;
  Steps& steps_;
};

// Returns what a loop's body knows of it, as `loop`.
Value loop_state(const List& items, std::size_t i) {
  Dict state;
  state.set("index0", Value(static_cast<std::int64_t>(i)));
  state.set("index", Value(static_cast<std::int64_t>(i + 1)));
  state.set("length", Value(static_cast<std::int64_t>(items.size())));
  state.set("first", Value(i == 0));
  state.set("last", Value(i + 1 == items.size()));
  if (i > 0) state.set("previtem", items[i - 1]);
  if (i + 1 < items.size()) state.set("nextitem", items[i + 1]);
  return Value::of(std::move(state));
}

// Runs statements, which write text.
class Evaluator {
 public:
  Evaluator(const std::string& name, const Dict& variables)
      : steps_(name), scopes_(variables), expressions_(scopes_, steps_) {}

  Rendered run(const Block& block) {
    run_block(block);
    return std::move(out_);
  }

 private:
  enum class Way : std::uint8_t { on, leave, go_on };  // out of a loop's body

  Way run_block(const Block& block) {
    for (const Statement& statement : block)
      if (const Way way = run_statement(statement); way != Way::on) return way;
    return Way::on;
  }

  Way run_statement(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::text: write(statement.text, statement.line); return Way::on;
      case StatementKind::output: {
        const Value value = evaluate(*statement.expressions[0]);
        write(steps_.at_line(statement.line, [&] { return text_of(value); }), statement.line);
        return Way::on;
      }
      case StatementKind::branch: return run_branch(statement);
      case StatementKind::loop: return run_loop(statement);
      case StatementKind::set: set(statement); return Way::on;
      case StatementKind::generation: {
        const std::size_t begin = out_.text.size();
        const Way way = run_block(statement.blocks[0]);
        out_.generated.push_back({begin, out_.text.size()});
        return way;
      }
      case StatementKind::leave: return Way::leave;
      case StatementKind::go_on: return Way::go_on;
    }
    return Way::on;
  }

  void write(const std::string& text, int line) {
    if (out_.text.size() + text.size() > longest_text) steps_.refuse(line, "the text becomes too long");
    out_.text += text;
  }

  Way run_branch(const Statement& branch) {
    for (std::size_t i = 0; i < branch.blocks.size(); ++i)
      if (!branch.expressions[i] || evaluate(*branch.expressions[i]).is_true())
        return run_block(branch.blocks[i]);
    return Way::on;
  }

  void set(const Statement& statement) {
    Value value = evaluate(*statement.expressions[0]);
    if (statement.member.empty()) return scopes_.set(statement.text, std::move(value));
    const Value* const of = scopes_.find(statement.text);
    const auto* const space = of ? of->as<Value::Namespace>() : nullptr;
    if (!space) steps_.refuse(statement.line, "'" + statement.text + "' is no namespace");
    space->names->set(statement.member, std::move(value));
  }

  void name_item(const Statement& loop, const Value& item) {
    if (loop.names.size() == 1) return scopes_.set(loop.names[0], item);
    const List* const parts = item.list();
    if (!parts || parts->size() != loop.names.size())
      steps_.refuse(loop.line, "an item has not as many parts as there are names");
    for (std::size_t i = 0; i < parts->size(); ++i) scopes_.set(loop.names[i], (*parts)[i]);
  }

  // Returns what a loop goes through: with a condition, those that fulfil it.
  List items_of_loop(const Statement& loop) {
    const Value of = evaluate(*loop.expressions[0]);
    List items;
    if (const Dict* const dict = of.dict())
      for (const auto& entry : dict->entries()) items.emplace_back(entry.first);
    else if (const List* const list = of.list())
      items = *list;
    else if (!of.is_undefined())
      steps_.refuse(loop.line,
                    std::string("a loop over ") + of.kind() + " is not something that prun has in templates");
    if (!loop.expressions[1]) return items;
    List kept;
    for (const Value& item : items) {
      steps_.count(loop.line);
      scopes_.push();
      name_item(loop, item);
      if (evaluate(*loop.expressions[1]).is_true()) kept.push_back(item);
      scopes_.pop();
    }
    return kept;
  }

  Way run_loop(const Statement& loop) {
    const List items = items_of_loop(loop);
    if (items.empty() && loop.blocks.size() > 1) return run_block(loop.blocks[1]);
    for (std::size_t i = 0; i < items.size(); ++i) {
      steps_.count(loop.line);
      scopes_.push();
      name_item(loop, items[i]);
      scopes_.set("loop", loop_state(items, i));
      const Way way = run_block(loop.blocks[0]);
      scopes_.pop();
      if (way == Way::leave) break;
    }
    return Way::on;
  }

  Value evaluate(const Expression& expression) { return expressions_.evaluate(expression); }

  Steps steps_;
  Scopes scopes_;
  Expressions expressions_;
  Rendered out_;
};

bool has_generation(const Block& block) {
  return std::any_of(block.begin(), block.end(), [](const Statement& statement) {
    return statement.kind == StatementKind::generation ||
           std::any_of(statement.blocks.begin(), statement.blocks.end(), has_generation);
  });
}

}  // namespace

Template::Template(std::string_view text, std::string name)
    : name_(std::move(name)),
      block_(parse_template(text, name_)),
      marks_generation_(has_generation(block_)) {}

Rendered Template::render(const Dict& variables) const { return Evaluator(name_, variables).run(block_); }

}  // namespace prun::chat
