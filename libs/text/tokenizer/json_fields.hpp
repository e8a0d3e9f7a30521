// Takes a file of others apart member by member: what nobody took is something that we do not know the
// meaning of.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {

// Is one object of the file, whose members are taken one by one.
class Fields {
 public:
  Fields(const JsonValue& value, std::string where) : where_(std::move(where)) {
    if (!value.is_object()) refuse("", "is not an object; it is damaged");
    object_ = &value.as_object();
  }

  const std::string& where() const { return where_; }
  std::string name_of(std::string_view name) const { return where_ + ": '" + std::string(name) + "'"; }

  // Returns null where it is missing, or null.
  const JsonValue* take(std::string_view name) {
    taken_.insert(name);
    const JsonValue* const value = object_->find(name);
    return value && !value->is_null() ? value : nullptr;
  }
  const JsonValue& need(std::string_view name) {
    const JsonValue* const value = take(name);
    if (!value) refuse(name, "is missing");
    return *value;
  }
  const std::string& text(std::string_view name) {
    const JsonValue& value = need(name);
    if (!value.is_string()) refuse(name, "is not a text; the file is damaged");
    return value.as_string();
  }
  bool flag(std::string_view name, bool fallback) {
    const JsonValue* const value = take(name);
    if (value && value->kind() != JsonKind::boolean)
      refuse(name, "is neither true nor false; the file is damaged");
    return value ? value->as_bool() : fallback;
  }
  const JsonArray& array(std::string_view name) {
    const JsonValue& value = need(name);
    if (!value.is_array()) refuse(name, "is not an array; the file is damaged");
    return value.as_array();
  }
  // Ignores members that change no token, such as the offsets of texts.
  void ignore(std::initializer_list<std::string_view> names) { taken_.insert(names); }
  // Expects a member that we support only as absent, null, false, 0 or the empty text.
  void expect_off(std::string_view name) {
    const JsonValue* const value = take(name);
    if (!value) return;
    const bool off = (value->kind() == JsonKind::boolean && !value->as_bool()) ||
                     (value->kind() == JsonKind::real && value->as_double() == 0) ||
                     (value->is_string() && value->as_string().empty());
    if (!off) refuse(name, "is set, which prun does not have; use a tokenizer without it");
  }
  // Nothing is left that nobody took.
  void finish() const {
    for (const JsonMember& member : object_->members())
      if (!taken_.count(member.name) && !member.value.is_null())
        refuse(printable(member.name, 60), "is not a setting that prun knows; use a tokenizer without it");
  }

  [[noreturn]] void refuse(std::string_view name, std::string_view reason) const {
    throw_error(ErrorCode::bad_input, name.empty() ? where_ : name_of(name), " ", reason);
  }

 private:
  std::string where_;
  const JsonObject* object_ = nullptr;
  std::set<std::string_view> taken_;
};

}  // namespace prun
