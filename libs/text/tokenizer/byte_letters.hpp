// Maps the letters of a byte-level vocabulary.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace prun {

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

}  // namespace prun
