// Reads the map of characters that SentencePiece compiles into a model: a double array that finds the bytes
// to replace, and the texts that take their place. Others wrote it: nothing in it is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

class Charsmap {
 public:
  // `encoded` is as a tokenizer.json has it, in base64. `where` names it in messages. Throws bad_input.
  Charsmap(std::string_view encoded, const std::string& where);

  // Clusters of few bytes are looked up whole, what is left by characters. Returns the text, or `made`.
  std::string_view of(std::string_view text, std::string& made) const;

 private:
  // Returns what replaces a text that begins with a key: the shortest such key.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace prun
