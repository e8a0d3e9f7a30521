// Holds what expressions of templates may call.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "chat/day.hpp"
#include "chat/value.hpp"

namespace prun::chat {

// Why a template cannot be evaluated; whoever knows its name and line says where.
struct Trouble {
  std::string what;
};

using Named = std::vector<std::pair<std::string, Value>>;

// Knows all but namespace() and macros.
Value call_function(const std::string& name, std::span<const Value> arguments, const Named& named,
                    const std::optional<Day>& today);
Value call_method(const std::string& name, const Value& of, std::span<const Value> arguments,
                  const Named& named);
Value call_text_method(const std::string& name, const std::string& text, std::span<const Value> arguments);
Value call_filter(const std::string& name, const Value& of, std::span<const Value> arguments,
                  const Named& named);
bool passes_test(const std::string& name, const Value& value, std::span<const Value> arguments);
Value apply_binary(const std::string& sign, const Value& left, const Value& right);
bool compares(const std::string& sign, const Value& left, const Value& right);
// Writes a value as Python's str() does.
std::string text_of(const Value& value);
// Writes a value as transformers' tojson does, with the arguments that it takes.
std::string json_of(const Value& value, std::span<const Value> arguments, const Named& named);

// Returns of['key'], of.name and of[first:last:step] as Jinja does.
Value item_of(const Value& of, const Value& key);
Value attribute_of(const Value& of, const std::string& name);
Value sliced(const Value& of, std::optional<std::int64_t> first, std::optional<std::int64_t> last,
             std::optional<std::int64_t> step);
// Returns what a loop goes through, as a list.
Value listed(const Value& of);

}  // namespace prun::chat
