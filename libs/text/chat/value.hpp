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
struct Statement;

// Limits the bytes of all values that a template holds at once.
constexpr std::size_t most_bytes = std::size_t{256} << 20;

// How large a value is when it is written out: what lists share counts wherever it is named.
struct Extent {
  std::size_t bytes = 0;
  int depth = 0;  // of lists and dicts in one another

  void add(const Extent& part);
};

// Keeps entries in the order in which keys came.
class Dict {
 public:
  const Value* find(std::string_view key) const;
  // Returns the bytes of the entry that this one replaces.
  std::size_t set(std::string key, Value value);
  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  const Extent& extent() const { return extent_; }
  static std::size_t bytes_of_entry(std::string_view key, const Value& value);

 private:
  std::vector<std::pair<std::string, Value>> entries_;
  Extent extent_;
};

struct Undefined {
  std::string name;  // in messages
};

// Lists and dicts are shared, as in Python; templates change namespaces alone.
class Value {
 public:
  struct Namespace {
    Dict* names;  // whoever evaluates the template keeps it, since namespaces may hold one another
  };
  struct Items {
    List list;
    Extent extent;
    bool is_tuple;  // it is written with other brackets, and equals no list
  };
  struct Macro {
    const Statement* statement;  // of the template
  };
  // Stands for a method of Python's that is named and not called, as `d.items` of a dict: it is there.
  struct Method {};
  using Storage =
      std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::string,
                   std::shared_ptr<const Items>, std::shared_ptr<const Dict>, Namespace, Macro, Method>;

  Value() : storage_(Undefined{}) {}
  template <class T>
  Value(T value)
      : storage_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a literal of the language

  // Throws bad_input for a whole number beyond 64 bits, of which Python writes every digit.
  static Value of(const JsonValue& json);
  static Value of(List list, bool is_tuple = false);
  static Value of(Dict dict) { return {std::make_shared<const Dict>(std::move(dict))}; }

  template <class T>
  const T* as() const {
    return std::get_if<T>(&storage_);
  }
  const List* list() const {
    const auto* const shared = as<std::shared_ptr<const Items>>();
    return shared ? &(*shared)->list : nullptr;
  }
  bool is_tuple() const {
    const auto* const shared = as<std::shared_ptr<const Items>>();
    return shared && (*shared)->is_tuple;
  }
  const Dict* dict() const {
    const auto* const shared = as<std::shared_ptr<const Dict>>();
    return shared ? shared->get() : nullptr;
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<std::nullptr_t>() != nullptr; }
  bool is_function() const { return as<Macro>() || as<Method>(); }
  // Judges as Python does.
  bool is_true() const;
  bool equals(const Value& other) const;
  // Returns "text", "number" and so on.
  const char* kind() const;
  Extent extent() const;

 private:
  Storage storage_;
};

}  // namespace prun::chat
