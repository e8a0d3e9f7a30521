#include "chat/value.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace prun::chat {

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries_)
    if (name == key) return &value;
  return nullptr;
}

void Extent::add(const Extent& part) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
  bytes = std::min(most, bytes + part.bytes);
  depth = std::max(depth, part.depth + 1);
}

std::size_t Dict::bytes_of_entry(std::string_view key, const Value& value) {
  return sizeof(std::string) + key.size() + value.extent().bytes;
}

std::size_t Dict::set(std::string key, Value value) {
  extent_.add({bytes_of_entry(key, value), value.extent().depth});
  for (auto& [name, old] : entries_)
    if (name == key) {
      const std::size_t replaced = bytes_of_entry(name, old);
      extent_.bytes -= replaced;
      old = std::move(value);
      return replaced;
    }
  entries_.emplace_back(std::move(key), std::move(value));
  return 0;
}

Value Value::of(List list, bool is_tuple) {
  Extent extent;
  for (const Value& item : list) extent.add(item.extent());
  return {std::make_shared<const Items>(std::move(list), extent, is_tuple)};
}

Extent Value::extent() const {
  Extent extent{sizeof(Value), 0};
  if (const auto* const text = as<std::string>()) extent.bytes += text->size();
  if (const auto* const items = as<std::shared_ptr<const Items>>()) extent.add((*items)->extent);
  if (const Dict* const entries = dict()) extent.add(entries->extent());
  return extent;
}

namespace {

// A real this large may have been written as a whole number, of which Python writes every digit.
double real_of(const JsonValue& json) {
  constexpr double largest = 9.2e18;
  if (std::abs(json.as_double()) >= largest)
    throw_error(ErrorCode::bad_input, "it holds the number ", json.as_double(),
                ", which is beyond 64 bits; write it as a text");
  return json.as_double();
}

}  // namespace

Value Value::of(const JsonValue& json) {
  switch (json.kind()) {
    case JsonKind::null: return {nullptr};
    case JsonKind::boolean: return {json.as_bool()};
    case JsonKind::integer: return {json.as_int64()};
    case JsonKind::unsigned_integer:
    case JsonKind::real: return {real_of(json)};
    case JsonKind::string: return {json.as_string()};
    case JsonKind::array: {
      List list;
      for (const JsonValue& item : json.as_array()) list.push_back(of(item));
      return of(std::move(list));
    }
    case JsonKind::object: break;
  }
  Dict dict;
  for (const JsonMember& member : json.as_object().members()) dict.set(member.name, of(member.value));
  return of(std::move(dict));
}

bool Value::is_true() const {
  if (const bool* const flag = as<bool>()) return *flag;
  if (const auto* const number = as<std::int64_t>()) return *number != 0;
  if (const auto* const number = as<double>()) return *number != 0;
  if (const auto* const text = as<std::string>()) return !text->empty();
  if (const List* const items = list()) return !items->empty();
  if (const Dict* const entries = dict()) return !entries->entries().empty();
  return as<Namespace>() || is_function();
}

namespace {

// Reads numbers and flags, which Python compares alike.
const double* number_of(const Value& value, double& number) {
  if (const bool* const flag = value.as<bool>()) return &(number = *flag ? 1 : 0);
  if (const auto* const whole = value.as<std::int64_t>()) return &(number = static_cast<double>(*whole));
  if (const auto* const real = value.as<double>()) return &(number = *real);
  return nullptr;
}

}  // namespace

bool Value::equals(const Value& other) const {
  double a = 0, b = 0;
  if (number_of(*this, a) && number_of(other, b)) return a == b;
  if (storage_.index() != other.storage_.index()) return false;
  if (const auto* const text = as<std::string>()) return *text == *other.as<std::string>();
  if (const List* const items = list())
    return is_tuple() == other.is_tuple() &&
           std::equal(items->begin(), items->end(), other.list()->begin(), other.list()->end(),
                      [](const Value& x, const Value& y) { return x.equals(y); });
  if (const auto* const macro = as<Macro>()) return macro->statement == other.as<Macro>()->statement;
  if (const auto* const space = as<Namespace>()) return space->names == other.as<Namespace>()->names;
  if (const Dict* const mine = dict()) {
    const auto& entries = mine->entries();
    return entries.size() == other.dict()->entries().size() &&
           std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
             const Value* const there = other.dict()->find(entry.first);
             return there && there->equals(entry.second);
           });
  }
  return is_undefined() || is_none();
}

const char* Value::kind() const {
  constexpr const char* kinds[] = {"nothing that is defined",
                                   "none",
                                   "a flag",
                                   "a number",
                                   "a number with a fraction",
                                   "a text",
                                   "a list",
                                   "a dict",
                                   "a namespace",
                                   "a macro",
                                   "a method"};
  return kinds[storage_.index()];
}

}  // namespace prun::chat
