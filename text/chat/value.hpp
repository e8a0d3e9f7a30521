// Holds what a template of conversations computes with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.hpp"

namespace prun::chat {

class Value;
using List = std::vector<Value>;

// Keeps entries in the order in which keys came.
class Dict {
 public:
  const Value* find(std::string_view key) const;
  void set(std::string key, Value value);
  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

struct Undefined {
  std::string name;  // in messages
};

// Lists and dicts are shared, as in Python; templates change namespaces alone.
class Value {
 public:
  struct Namespace {
    std::shared_ptr<Dict> names;
  };
  using Storage = std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::string,
                               std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace>;

  Value() : storage_(Undefined{}) {}
  template <class T>
  Value(T value)
      : storage_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a literal of the language

  static Value of(const JsonValue& json);
  static Value of(List list) { return {std::make_shared<const List>(std::move(list))}; }
  static Value of(Dict dict) { return {std::make_shared<const Dict>(std::move(dict))}; }

  template <class T>
  const T* as() const {
    return std::get_if<T>(&storage_);
  }
  const List* list() const {
    const auto* const shared = as<std::shared_ptr<const List>>();
    return shared ? shared->get() : nullptr;
  }
  const Dict* dict() const {
    const auto* const shared = as<std::shared_ptr<const Dict>>();
    return shared ? shared->get() : nullptr;
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<std::nullptr_t>() != nullptr; }
  // Judges as Python does.
  bool is_true() const;
  bool equals(const Value& other) const;
  // Returns "text", "number" and so on.
  const char* kind() const;

 private:
  Storage storage_;
};

}  // namespace prun::chat
