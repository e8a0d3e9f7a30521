// The parts of a tokenizer.json, read one by one. Each throws bad_input for what is damaged and for what prun
// does not have, by its name; `where` is the part's name in messages.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun {

// ------------------------------------------------------------------- byte letters
// Maps the letters of a byte-level vocabulary.

// Maps letters of the file's tokens to the bytes that they stand for: printable Latin-1 for itself, all
// others in their order for U+0100 and on.
class ByteLetters {
 public:
  ByteLetters() {
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      bytes_[static_cast<std::size_t>(itself ? byte : 0x100 + others++)] = byte;
    }
  }
  // Nothing for a text with other letters, which no word can become.
  std::optional<std::string> decode(std::string_view text) const {
    std::string bytes;
    while (!text.empty()) {
      const CodePoint point = decode_utf8(text);
      if (point.value >= bytes_.size() || bytes_[point.value] < 0) return {};
      bytes += static_cast<char>(bytes_[point.value]);
      text.remove_prefix(point.bytes);
    }
    return bytes;
  }

 private:
  static constexpr std::size_t letters = 0x100 + 68;
  std::array<int, letters> bytes_ = [] {
    std::array<int, letters> none{};
    none.fill(-1);
    return none;
  }();
};

// ------------------------------------------------------------------- json fields
// Takes a file of others apart member by member: what nobody took is something that we do not know the
// meaning of.

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

// ------------------------------------------------------------------- tokenizer parts

[[noreturn]] void refuse_type(const Fields& fields, const std::string& type);

void read_normalizer(const JsonValue& value, const std::string& where, Normalizer& out);

struct Cutting {
  std::vector<CuttingStep> steps;
  bool bytes = false;  // words are then taken as bytes, each of which has a letter in the vocabulary
};
void read_cutting(const JsonValue& value, const std::string& where, Cutting& out);

// Holds the tokens by their texts in the file.
struct Vocabulary {
  std::string source;
  std::vector<std::string> texts;  // by id; empty where there is none
  std::unordered_map<std::string, TokenId> ids;

  // Ids are below `most`: far beyond the number of tokens they would make a table of nothing.
  TokenId id_of(const JsonValue& value, const std::string& token, std::size_t most) const;
  void add(const std::string& token, TokenId id);
};

// `bytes` is as of Cutting, `most` as of id_of().
WordModel read_model(const JsonValue& value, const std::string& where, bool bytes, std::size_t added,
                     Vocabulary& vocabulary);

// Says how the texts of tokens stand for bytes, and how these make a text.
struct Decoding {
  DecodingRules rules;
  bool letters = false;        // as ByteLetters have it
  bool byte_fallback = false;  // <0x0A> is a byte
  std::string mark;            // stands for a space; empty: nothing does

  std::string bytes_of(const std::string& token) const;
};
Decoding read_decoding(const JsonValue& value, const std::string& where);

}  // namespace prun
