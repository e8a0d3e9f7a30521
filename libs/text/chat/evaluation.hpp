// Evaluates expressions of templates, with the values that names have.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "chat/steps.hpp"
#include "chat/syntax.hpp"

namespace prun::chat {

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

}  // namespace prun::chat
