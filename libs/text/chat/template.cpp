#include "chat/template.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/functions.hpp"
#include "chat/syntax.hpp"
#include "chat/value.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

// ------------------------------------------------------------------- steps
// Bounds what a template does and holds, and says what goes wrong with its place.

// Counts the steps of a template, the bytes that it holds, and how deep it is in itself.
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
  // Runs `body`, and reports an error in it with the line.
  template <class Body>
  auto at_line(int line, Body&& body) {
    count(line);
    const Deeper deeper(*this, line);
    try {
      return body();
    } catch (const Trouble& trouble) {
      refuse(line, trouble.what);
    }
  }

 private:
  static constexpr std::size_t most_steps = 2'000'000;
  static constexpr std::size_t bytes_of_step = 64
                                               << 10;  // what is read and copied in the time of about a step
  static constexpr int deepest = 800;

  // Macros may call themselves, each time as deep as they are written.
  class Deeper {
   public:
    Deeper(Steps& steps, int line) : steps_(steps) {
      if (steps_.depth_ == deepest) steps_.refuse(line, "the template goes too deep into itself");
      ++steps_.depth_;
    }
    ~Deeper() { --steps_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Steps& steps_;
  };

  const std::string& name_;
  std::size_t taken_ = 0, held_ = 0;
  int depth_ = 0;
};

// Counts values as held while something is made of them.
class Held {
 public:
  Held(Steps& steps, int line) : steps_(steps), line_(line) {}
  ~Held() { steps_.release(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void add(const Value& value) { add(value.extent().bytes); }
  void add(std::size_t bytes) {
    steps_.hold(line_, bytes);
    bytes_ += bytes;
  }

 private:
  Steps& steps_;
  int line_;
  std::size_t bytes_ = 0;
};

// Sets an entry of a dict that is held.
inline void set_held(Steps& steps, int line, Dict& in, const std::string& name, Value value) {
  steps.hold(line, Dict::bytes_of_entry(name, value));
  steps.release(in.set(name, std::move(value)));
}

// Holds the names of nested blocks, the innermost last. A macro sees its own names and those at the top.
class Scopes {
 public:
  // A value that is given beforehand counts once a name is set to it again.
  Scopes(const Dict& given, Steps& steps) : given_(given), scopes_(1), steps_(steps) {}

  const Value* find(const std::string& name) const {
    for (std::size_t i = scopes_.size(); i-- > first_;)
      if (const Value* const found = scopes_[i].find(name)) return found;
    const Value* const found = scopes_.front().find(name);
    return found ? found : given_.find(name);
  }
  void set(int line, const std::string& name, Value value) {
    set_held(steps_, line, scopes_.back(), name, std::move(value));
  }
  bool is_at_top() const { return scopes_.size() == 1; }

  // Opens a scope while it lives.
  class Inner {
   public:
    explicit Inner(Scopes& scopes, bool of_macro = false) : scopes_(scopes), first_(scopes.first_) {
      if (of_macro) scopes_.first_ = scopes_.scopes_.size();
      scopes_.scopes_.emplace_back();
    }
    ~Inner() {
      scopes_.steps_.release(scopes_.scopes_.back().extent().bytes);
      scopes_.scopes_.pop_back();
      scopes_.first_ = first_;
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Scopes& scopes_;
    std::size_t first_;
  };

 private:
  const Dict& given_;
  std::deque<Dict> scopes_;
  std::size_t first_ = 0;  // of the macro that is called
  Steps& steps_;
};

// ------------------------------------------------------------------- evaluation
// Evaluates expressions of templates, with the values that names have.

// Whoever runs statements calls macros.
class MacroRunner {
 public:
  virtual Value call_macro(const Statement& macro, int line, std::span<const Value> arguments,
                           const Named& named) = 0;

 protected:
  ~MacroRunner() = default;
};

class Evaluation {
 public:
  Evaluation(const Scopes& scopes, Steps& steps, MacroRunner& macros, const std::optional<Day>& today)
      : scopes_(scopes), steps_(steps), macros_(macros), today_(today) {}

  Value of(const Expression& expression);

 private:
  struct Operands {
    Operands(Evaluation& by, const Expression& of);
    std::vector<Value> values;
    Named named;
    Held held;
  };

  Value value_of(const Expression& expression);
  Value made_of(const Expression& expression);
  Value named_value(const std::string& name) const;
  Value call(const Expression& expression);
  Value make_namespace(int line, const Operands& all);
  Value dict_of(const Expression& expression);
  Value slice_of(const Expression& expression);
  std::optional<std::int64_t> bound(const ExpressionPointer& part);
  Value unary(const Expression& expression);
  Value binary(const Expression& expression);
  Value comparison(const Expression& expression);

  const Scopes& scopes_;
  Steps& steps_;
  MacroRunner& macros_;
  const std::optional<Day>& today_;
  std::deque<Dict> namespaces_;
};

Evaluation::Operands::Operands(Evaluation& by, const Expression& of) : held(by.steps_, of.line) {
  for (const ExpressionPointer& part : of.parts)
    held.add(values.emplace_back(part ? by.of(*part) : Value(nullptr)));
  for (const auto& [name, part] : of.named) held.add(named.emplace_back(name, by.of(*part)).second);
}

Value Evaluation::of(const Expression& expression) {
  constexpr int deepest = 1000;
  Value value = steps_.at_line(expression.line, [&] { return value_of(expression); });
  if (const auto* const text = value.as<std::string>()) steps_.count_bytes(text->size());
  if (value.extent().depth > deepest) steps_.refuse(expression.line, "a list is nested too deeply");
  return value;
}

Value Evaluation::value_of(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::literal: return expression.value;
    case ExpressionKind::name: return named_value(expression.text);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
      return Value::of(Operands(*this, expression).values, expression.kind == ExpressionKind::tuple);
    case ExpressionKind::dict: return dict_of(expression);
    case ExpressionKind::item: return item_of(of(*expression.parts[0]), of(*expression.parts[1]));
    case ExpressionKind::attribute: return attribute_of(of(*expression.parts[0]), expression.text);
    case ExpressionKind::slice: return slice_of(expression);
    case ExpressionKind::call:
    case ExpressionKind::method:
    case ExpressionKind::filter:
    case ExpressionKind::test: {
      Value made = made_of(expression);
      steps_.count_bytes(made.extent().bytes);
      return made;
    }
    case ExpressionKind::unary: return unary(expression);
    case ExpressionKind::binary: return binary(expression);
    case ExpressionKind::comparison: return comparison(expression);
    case ExpressionKind::conditional: break;
  }
  if (of(*expression.parts[1]).is_true()) return of(*expression.parts[0]);
  return expression.parts[2] ? of(*expression.parts[2]) : Value();
}

// Evaluates the operands of a call, method, filter or test, and then calls it by its name.
Value Evaluation::made_of(const Expression& expression) {
  if (expression.kind == ExpressionKind::call) return call(expression);
  const Operands all(*this, expression);
  const std::span<const Value> rest = std::span(all.values).subspan(1);
  if (expression.kind == ExpressionKind::method)
    return call_method(expression.text, all.values[0], rest, all.named);
  if (expression.kind == ExpressionKind::filter)
    return call_filter(expression.text, all.values[0], rest, all.named);
  if (!all.named.empty())
    throw Trouble{"a test is given '" + all.named[0].first + "', which prun does not have"};
  return {passes_test(expression.text, all.values[0], rest)};
}

// Returns a value for the names of functions too, since templates ask whether these are defined.
Value Evaluation::named_value(const std::string& name) const {
  if (const Value* const found = scopes_.find(name)) return *found;
  for (const char* function : {"raise_exception", "strftime_now", "namespace", "range", "dict"})
    if (name == function) return {Value::Method{}};
  for (const char* special : {"varargs", "kwargs", "caller", "cycler", "joiner", "lipsum", "self"})
    if (name == special) throw Trouble{"'" + name + "' is not something that prun has in templates"};
  return {Undefined{name}};
}

Value Evaluation::call(const Expression& expression) {
  const Operands all(*this, expression);
  if (const Value* const found = scopes_.find(expression.text)) {
    const auto* const macro = found->as<Value::Macro>();
    if (!macro) throw Trouble{"'" + expression.text + "' is " + found->kind() + ", and is called"};
    return macros_.call_macro(*macro->statement, expression.line, all.values, all.named);
  }
  if (expression.text == "namespace") return make_namespace(expression.line, all);
  return call_function(expression.text, all.values, all.named, today_);
}

Value Evaluation::make_namespace(int line, const Operands& all) {
  Dict& names = namespaces_.emplace_back();
  for (const Value& given : all.values) {
    if (!given.dict()) throw Trouble{std::string("namespace is given ") + given.kind()};
    for (const auto& [name, value] : given.dict()->entries()) set_held(steps_, line, names, name, value);
  }
  for (const auto& [name, value] : all.named) set_held(steps_, line, names, name, value);
  return {Value::Namespace{&names}};
}

Value Evaluation::dict_of(const Expression& expression) {
  const Operands all(*this, expression);
  Dict dict;
  for (std::size_t i = 0; i < all.values.size(); i += 2) {
    const auto* const key = all.values[i].as<std::string>();
    if (!key) throw Trouble{std::string("the key of a dict is ") + all.values[i].kind() + ", not a text"};
    dict.set(*key, all.values[i + 1]);
  }
  return Value::of(std::move(dict));
}

std::optional<std::int64_t> Evaluation::bound(const ExpressionPointer& part) {
  if (!part) return {};
  const Value value = of(*part);
  if (value.is_none()) return {};
  const auto* const number = value.as<std::int64_t>();
  if (!number) throw Trouble{"a slice takes whole numbers"};
  return *number;
}

Value Evaluation::slice_of(const Expression& expression) {
  const Value whole = of(*expression.parts[0]);
  Held held(steps_, expression.line);
  held.add(whole);
  const std::optional<std::int64_t> first = bound(expression.parts[1]), last = bound(expression.parts[2]),
                                    step = bound(expression.parts[3]);
  return sliced(whole, first, last, step);
}

Value Evaluation::unary(const Expression& expression) {
  const Value value = of(*expression.parts[0]);
  if (expression.text == "not") return {!value.is_true()};
  if (const auto* const number = value.as<double>()) return {expression.text == "-" ? -*number : *number};
  return apply_binary(expression.text, Value(std::int64_t{0}), value);
}

Value Evaluation::binary(const Expression& expression) {
  const auto is_safe = [](const ExpressionPointer& part) {
    return part->kind == ExpressionKind::filter && part->text == "safe";
  };
  if (expression.text == "+" && (is_safe(expression.parts[0]) || is_safe(expression.parts[1])))
    throw Trouble{
        "'+' of what is safe, which writes letters of HTML otherwise, is not something that prun has in "
        "templates; write '~'"};
  Value left = of(*expression.parts[0]);
  if (expression.text == "and" && !left.is_true()) return left;
  if (expression.text == "or" && left.is_true()) return left;
  Held held(steps_, expression.line);
  held.add(left);
  Value right = of(*expression.parts[1]);
  if (expression.text == "and" || expression.text == "or") return right;
  held.add(right);
  return apply_binary(expression.text, left, right);
}

// Compares neighbours in `a < b < c` from left to right, and stops at the first comparison that is false.
Value Evaluation::comparison(const Expression& expression) {
  Value left = of(*expression.parts[0]);
  for (std::size_t i = 0; i < expression.signs.size(); ++i) {
    Held held(steps_, expression.line);
    held.add(left);
    Value right = of(*expression.parts[i + 1]);
    held.add(right);
    if (!compares(expression.signs[i], left, right)) return {false};
    left = std::move(right);
  }
  return {true};
}

// ------------------------------------------------------------------- template

// Returns what a loop's body knows of it, as `loop`.
Value loop_state(const List& items, std::size_t i) {
  Dict state;
  const auto number = [&](const char* name, std::size_t value) {
    state.set(name, Value(static_cast<std::int64_t>(value)));
  };
  number("index0", i);
  number("index", i + 1);
  number("revindex0", items.size() - i - 1);
  number("revindex", items.size() - i);
  number("length", items.size());
  state.set("first", Value(i == 0));
  state.set("last", Value(i + 1 == items.size()));
  if (i > 0) state.set("previtem", items[i - 1]);
  if (i + 1 < items.size()) state.set("nextitem", items[i + 1]);
  return Value::of(std::move(state));
}

// Runs statements, which write text.
class Evaluator final : MacroRunner {
 public:
  Evaluator(const std::string& name, const Dict& variables, const std::optional<Day>& today)
      : steps_(name), scopes_(variables, steps_), evaluation_(scopes_, steps_, *this, today) {}

  Rendered run(const Block& block) {
    run_block(block);
    return std::move(out_);
  }

 private:
  enum class Way : std::uint8_t { on, leave, go_on };  // out of a loop's body

  Way run_block(const Block& block) {
    for (const Statement& statement : block.statements)
      if (const Way way = steps_.at_line(statement.line, [&] { return run_statement(statement); });
          way != Way::on)
        return way;
    return Way::on;
  }

  Way run_statement(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::text: write(statement.text, statement.line); return Way::on;
      case StatementKind::output:
        write(text_of(evaluate(*statement.expressions[0])), statement.line);
        return Way::on;
      case StatementKind::branch: return run_branch(statement);
      case StatementKind::loop: return run_loop(statement);
      case StatementKind::set: set(statement, evaluate(*statement.expressions[0])); return Way::on;
      case StatementKind::capture: set(statement, captured(statement)); return Way::on;
      case StatementKind::macro:
        scopes_.set(statement.line, statement.text, Value(Value::Macro{&statement}));
        return Way::on;
      case StatementKind::generation: return run_generation(statement);
      case StatementKind::leave: return Way::leave;
      case StatementKind::go_on: return Way::go_on;
    }
    return Way::on;
  }

  // A macro's text counts as a part of what the template may hold.
  void write(const std::string& text, int line) {
    if (text.size() > most_bytes - out_.text.size()) steps_.refuse(line, "the text becomes too long");
    if (capture_) capture_->add(text.size());
    out_.text += text;
  }

  // Returns what a body writes, instead of writing it.
  Value captured(const Statement& statement) {
    Held held(steps_, statement.line);
    Held* const outer = std::exchange(capture_, &held);
    std::string before = std::exchange(out_.text, {});
    {
      const Scopes::Inner inner(scopes_);
      run_block(statement.blocks[0]);
    }
    capture_ = outer;
    return {std::exchange(out_.text, std::move(before))};
  }

  Value call_macro(const Statement& macro, int line, std::span<const Value> arguments,
                   const Named& named) override {
    if (arguments.size() > macro.names.size())
      throw Trouble{"the macro '" + macro.text + "' takes no more than " +
                    std::to_string(macro.names.size()) + " arguments"};
    const Scopes::Inner inner(scopes_, true);
    for (std::size_t i = 0; i < arguments.size(); ++i) scopes_.set(line, macro.names[i], arguments[i]);
    for (const auto& [name, value] : named) {
      const auto known = std::find(macro.names.begin(), macro.names.end(), name);
      if (known == macro.names.end() || known - macro.names.begin() < std::ssize(arguments))
        throw Trouble{"the macro '" + macro.text + "' takes no '" + name + "' here"};
      scopes_.set(line, name, value);
    }
    for (std::size_t i = arguments.size(); i < macro.names.size(); ++i) {
      const auto is_it = [&](const auto& one) { return one.first == macro.names[i]; };
      if (std::any_of(named.begin(), named.end(), is_it)) continue;
      const ExpressionPointer& otherwise = macro.expressions[i];
      scopes_.set(line, macro.names[i], otherwise ? evaluate(*otherwise) : Value(Undefined{macro.names[i]}));
    }
    return captured(macro);
  }

  Way run_generation(const Statement& generation) {
    const Scopes::Inner inner(scopes_);
    const std::size_t begin = out_.text.size();
    const Way way = run_block(generation.blocks[0]);
    out_.generated.push_back({begin, out_.text.size()});
    return way;
  }

  Way run_branch(const Statement& branch) {
    for (std::size_t i = 0; i < branch.blocks.size(); ++i)
      if (!branch.expressions[i] || evaluate(*branch.expressions[i]).is_true())
        return run_block(branch.blocks[i]);
    return Way::on;
  }

  void set(const Statement& statement, Value value) {
    if (statement.member.empty()) return name_parts(statement, value);
    const Value* const of = scopes_.find(statement.names[0]);
    const auto* const space = of ? of->as<Value::Namespace>() : nullptr;
    if (!space) steps_.refuse(statement.line, "'" + statement.names[0] + "' is no namespace");
    if (statement.member.starts_with('_'))
      steps_.refuse(statement.line, "a namespace holds no '" + statement.member + "'");
    set_held(steps_, statement.line, *space->names, statement.member, std::move(value));
  }

  // Gives names to a value, or one to each of its parts.
  void name_parts(const Statement& statement, const Value& value) {
    if (statement.names.size() == 1) return scopes_.set(statement.line, statement.names[0], value);
    const List* const parts = value.list();
    if (!parts || parts->size() != statement.names.size())
      steps_.refuse(statement.line, "an item has not as many parts as there are names");
    for (std::size_t i = 0; i < parts->size(); ++i)
      scopes_.set(statement.line, statement.names[i], (*parts)[i]);
  }

  // Returns what a loop goes through: with a condition, those that fulfil it.
  List items_of_loop(const Statement& loop, Held& held) {
    const Value of = evaluate(*loop.expressions[0]);
    held.add(of);
    const Value all = listed(of);
    held.add(all);
    if (!loop.expressions[1]) return *all.list();
    List kept;
    for (const Value& item : *all.list()) {
      steps_.count(loop.line);
      const Scopes::Inner inner(scopes_);
      name_parts(loop, item);
      if (evaluate(*loop.expressions[1]).is_true()) kept.push_back(item);
    }
    return kept;
  }

  Way run_loop(const Statement& loop) {
    Held held(steps_, loop.line);
    const List items = items_of_loop(loop, held);
    if (items.empty() && loop.blocks.size() > 1) {
      const Scopes::Inner inner(scopes_);
      return run_block(loop.blocks[1]);
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      steps_.count(loop.line);
      const Scopes::Inner inner(scopes_);
      name_parts(loop, items[i]);
      scopes_.set(loop.line, "loop", loop_state(items, i));
      if (run_block(loop.blocks[0]) == Way::leave) break;
    }
    return Way::on;
  }

  Value evaluate(const Expression& expression) { return evaluation_.of(expression); }

  Steps steps_;
  Scopes scopes_;
  Evaluation evaluation_;
  Rendered out_;
  Held* capture_ = nullptr;  // of the macro or set that is being written
};

bool has_generation(const Block& block) {
  return std::any_of(block.statements.begin(), block.statements.end(), [](const Statement& statement) {
    return statement.kind == StatementKind::generation ||
           std::any_of(statement.blocks.begin(), statement.blocks.end(), has_generation);
  });
}

}  // namespace

Template::Template(std::string_view text, std::string name)
    : name_(std::move(name)),
      block_(parse_template(text, name_)),
      marks_generation_(has_generation(block_)) {}

Rendered Template::render(const Dict& variables, const std::optional<Day>& today) const {
  return Evaluator(name_, variables, today).run(block_);
}

}  // namespace prun::chat
