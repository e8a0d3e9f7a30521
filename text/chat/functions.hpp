// Holds what expressions of templates may call.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "chat/value.hpp"

namespace prun::chat {

// Why a template cannot be evaluated; whoever knows its name and line says where.
struct Trouble {
  std::string what;
};

using Named = std::vector<std::pair<std::string, Value>>;

// Knows all but namespace().
Value call_function(const std::string& name, std::span<const Value> arguments);
Value call_method(const std::string& name, const Value& of, std::span<const Value> arguments);
// A filter's own value is the first argument.
Value call_filter(const std::string& name, std::span<const Value> arguments, const Named& named);
bool passes_test(const std::string& name, const Value& value);
Value apply_binary(const std::string& sign, const Value& left, const Value& right);
// Writes a value as Python's str() does.
std::string text_of(const Value& value);
std::string json_of(const Value& value);
Value item_of(const Value& of, const Value& key);

}  // namespace prun::chat
