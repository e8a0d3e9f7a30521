#include "tokenizer/charsmap.hpp"

#include <array>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "tokenizer/letters.hpp"

namespace prun {
namespace {

constexpr std::string_view base64_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Nothing for what is not base64.
std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char letter : text) {
    const std::size_t value = base64_letters.find(letter);
    if (value == base64_letters.npos) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// These read parts of a node of the double array.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label_of(std::uint32_t unit) { return unit & (0x80000000u | 0xFF); }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

// Says whether two characters that follow each other belong to one cluster, as far as clusters of few bytes
// go.
bool are_one_cluster(char32_t before, char32_t behind) {
  if (before == '\r' && behind == '\n') return true;
  if (is_of(LetterClass::keeps_apart, before) || is_of(LetterClass::keeps_apart, behind)) return false;
  return is_of(LetterClass::joins_before, behind) || is_of(LetterClass::joins_behind, before);
}

std::size_t first_cluster(std::string_view text) {
  CodePoint before = decode_utf8(text);
  std::size_t at = before.bytes;
  while (at < text.size()) {
    const CodePoint point = decode_utf8(text.substr(at));
    if (before.value < 0x80 && point.value < 0x80 && before.value != '\r') break;
    if (!are_one_cluster(before.value, point.value)) break;
    before = point;
    at += point.bytes;
  }
  return at;
}

constexpr std::size_t longest_cluster = 5;  // bytes that are looked up together

}  // namespace

Charsmap::Charsmap(std::string_view encoded, const std::string& where) {
  const std::optional<std::string> bytes = from_base64(encoded);
  const auto damaged = [&](const char* what) {
    throw_error(ErrorCode::bad_input, where, " ", what, "; the file is damaged");
  };
  if (!bytes || bytes->size() < 4) damaged("is no precompiled map of characters");
  const std::string_view all = *bytes;
  const std::size_t size = little_endian(all);
  if (size % 4 != 0 || size > all.size() - 4 || size == 0) damaged("has an array that does not fit into it");
  for (std::size_t at = 0; at < size; at += 4) units_.push_back(little_endian(all.substr(4 + at)));
  texts_ = all.substr(4 + size);
  if (texts_.empty() || texts_.back() != '\0' || !valid_utf8(texts_)) damaged("has texts that are no UTF-8");
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  std::size_t node = offset_of(units_[0]);
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return {};
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) return {};
    if (!has_leaf(unit)) continue;
    const std::size_t at = units_[node] & 0x7FFFFFFFu;
    if (at >= texts_.size() || (static_cast<unsigned char>(texts_[at]) & 0xC0) == 0x80) return {};
    return std::string_view(texts_).substr(at, texts_.find('\0', at) - at);
  }
  return {};
}

std::string_view Charsmap::of(std::string_view text, std::string& made) const {
  made.clear();
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, first_cluster(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() <= longest_cluster)
      if (const auto whole = find(cluster)) {
        made += *whole;
        continue;
      }
    while (!cluster.empty()) {
      const std::string_view letter = cluster.substr(0, decode_utf8(cluster).bytes);
      made += find(letter).value_or(letter);
      cluster.remove_prefix(letter.size());
    }
  }
  return made;
}

}  // namespace prun
