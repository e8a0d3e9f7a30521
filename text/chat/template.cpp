#include "chat/template.hpp"

#include <algorithm>
#include <deque>

#include "chat/functions.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

constexpr std::size_t most_steps = 2'000'000;
constexpr std::size_t bytes_of_step = 64 << 10;  // what is read and copied in the time of about a step

// Counts the steps of a template and the bytes that it holds, which are bounded, and says what goes wrong
// with its place.
class Steps {
 public:
  explicit Steps(const std::string& name) : name_(name) {}

  [[noreturn]] void refuse(int line, const std::string& what) const {
    throw_error(ErrorCode::bad_input, name_, ":", line, ": ", what);
  }
  void count(int line) {
    if (++taken_ > most_steps) refuse(line, "the template takes too many steps");
  }
  // Long values take more than the step that makes them.
  void count_bytes(std::size_t bytes) { taken_ += bytes / bytes_of_step; }
  void hold(int line, std::size_t bytes) {
    if (bytes > most_bytes - held_)
      refuse(line, "the template would hold more than 256 MiB of values; take one that makes less");
    held_ += bytes;
    count_bytes(bytes);
  }
  void release(std::size_t bytes) { held_ -= bytes; }
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
  std::size_t taken_ = 0, held_ = 0;
};

// Values that are held while something is made of them.
class Held {
 public:
  Held(Steps& steps, int line) : steps_(steps), line_(line) {}
  ~Held() { steps_.release(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void add(const Value& value) {
    const std::size_t bytes = value.extent().bytes;
    steps_.hold(line_, bytes);
    bytes_ += bytes;
  }

 private:
  Steps& steps_;
  int line_;
  std::size_t bytes_ = 0;
};

// Sets an entry of a dict that is held.
void set_held(Steps& steps, int line, Dict& in, const std::string& name, Value value) {
  steps.hold(line, Dict::bytes_of_entry(name, value));
  steps.release(in.set(name, std::move(value)));
}

// Names as blocks of loops see them, the innermost last.
class Scopes {
 public:
  // What is given beforehand counts once a name is set to it again.
  Scopes(const Dict& given, Steps& steps) : given_(given), scopes_(1), steps_(steps) {}

  const Value* find(const std::string& name) const {
    for (std::size_t i = scopes_.size(); i-- > 0;)
      if (const Value* const found = scopes_[i].find(name)) return found;
    return given_.find(name);
  }
  void set(int line, const std::string& name, Value value) {
    set_held(steps_, line, scopes_.back(), name, std::move(value));
  }
  void push() { scopes_.emplace_back(); }
  void pop() {
    steps_.release(scopes_.back().extent().bytes);
    scopes_.pop_back();
  }

 private:
  const Dict& given_;
  std::vector<Dict> scopes_;
  Steps& steps_;
};

// Evaluates expressions, with the values that names have.
class Expressions {
 public:
  Expressions(const Scopes& scopes, Steps& steps) : scopes_(scopes), steps_(steps) {}

  Value evaluate(const Expression& expression) {
    Value value = steps_.at_line(expression.line, [&] { return value_of(expression); });
    if (const auto* const text = value.as<std::string>()) steps_.count_bytes(text->size());
    if (value.extent().depth > deepest) steps_.refuse(expression.line, "a list is nested too deeply");
    return value;
  }

 private:
  static constexpr int deepest = 1000;

  struct Operands {
    Operands(Expressions& by, const Expression& of) : held(by.steps_, of.line) {
      for (const ExpressionPointer& part : of.parts)
        held.add(values.emplace_back(part ? by.evaluate(*part) : Value(nullptr)));
      for (const auto& [name, part] : of.named) held.add(named.emplace_back(name, by.evaluate(*part)).second);
    }
    std::vector<Value> values;
    Named named;
    Held held;
  };

  Value value_of(const Expression& expression) {
    switch (expression.kind) {
      case ExpressionKind::literal: return expression.value;
      case ExpressionKind::name: return named_value(expression.text);
      case ExpressionKind::list: return Value::of(Operands(*this, expression).values);
      case ExpressionKind::dict: return dict_of(expression);
      case ExpressionKind::item:
        return item_of(evaluate(*expression.parts[0]), evaluate(*expression.parts[1]));
      case ExpressionKind::slice: return slice_of(expression);
      case ExpressionKind::call: {
        const Operands all(*this, expression);
        return expression.text == "namespace" ? make_namespace(expression.line, all.named)
                                              : call_function(expression.text, all.values);
      }
      case ExpressionKind::method: {
        const Operands all(*this, expression);
        if (!all.named.empty())
          throw Trouble{"a method is given arguments by name, which prun does not have in templates"};
        return call_method(expression.text, all.values[0], std::span(all.values).subspan(1));
      }
      case ExpressionKind::filter: {
        const Operands all(*this, expression);
        return call_filter(expression.text, all.values, all.named);
      }
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

  Value make_namespace(int line, const Named& named) {
    Dict& names = namespaces_.emplace_back();
    for (const auto& [name, value] : named) set_held(steps_, line, names, name, value);
    return {Value::Namespace{&names}};
  }

  Value dict_of(const Expression& expression) {
    const Operands all(*this, expression);
    Dict dict;
    for (std::size_t i = 0; i < all.values.size(); i += 2)
      dict.set(text_of(all.values[i]), all.values[i + 1]);
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
    Held held(steps_, expression.line);
    held.add(of);
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
    Held held(steps_, expression.line);
    held.add(left);
    Value right = evaluate(*expression.parts[1]);
    if (expression.text == "and" || expression.text == "or") return right;
    held.add(right);
    return apply_binary(expression.text, left, right);
  }

  const Scopes& scopes_;
  Steps& steps_;
  std::deque<Dict> namespaces_;
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
      : steps_(name), scopes_(variables, steps_), expressions_(scopes_, steps_) {}

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
    if (text.size() > most_bytes - out_.text.size()) steps_.refuse(line, "the text becomes too long");
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
    if (statement.member.empty()) return scopes_.set(statement.line, statement.text, std::move(value));
    const Value* const of = scopes_.find(statement.text);
    const auto* const space = of ? of->as<Value::Namespace>() : nullptr;
    if (!space) steps_.refuse(statement.line, "'" + statement.text + "' is no namespace");
    set_held(steps_, statement.line, *space->names, statement.member, std::move(value));
  }

  void name_item(const Statement& loop, const Value& item) {
    if (loop.names.size() == 1) return scopes_.set(loop.line, loop.names[0], item);
    const List* const parts = item.list();
    if (!parts || parts->size() != loop.names.size())
      steps_.refuse(loop.line, "an item has not as many parts as there are names");
    for (std::size_t i = 0; i < parts->size(); ++i) scopes_.set(loop.line, loop.names[i], (*parts)[i]);
  }

  // Returns what a loop goes through: with a condition, those that fulfil it.
  List items_of_loop(const Statement& loop, Held& held) {
    const Value of = evaluate(*loop.expressions[0]);
    held.add(of);
    List items;
    if (const Dict* const dict = of.dict())
      for (const auto& entry : dict->entries()) items.emplace_back(entry.first);
    else if (const List* const list = of.list())
      items = *list;
    else if (!of.is_undefined())
      steps_.refuse(loop.line,
                    std::string("a loop over ") + of.kind() + " is not something that prun has in templates");
    if (!loop.expressions[1]) return items;
    held.add(of);
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
    Held held(steps_, loop.line);
    const List items = items_of_loop(loop, held);
    if (items.empty() && loop.blocks.size() > 1) return run_block(loop.blocks[1]);
    for (std::size_t i = 0; i < items.size(); ++i) {
      steps_.count(loop.line);
      scopes_.push();
      name_item(loop, items[i]);
      scopes_.set(loop.line, "loop", loop_state(items, i));
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
