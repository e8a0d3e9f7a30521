#include "chat/template.hpp"

#include <algorithm>

#include "chat/evaluation.hpp"

namespace prun::chat {
namespace {

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

  // What a macro writes takes of what the template may hold.
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
