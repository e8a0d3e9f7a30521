// Unicode's normal form C: characters that combine are put in their order and together, so that texts that
// look the same are the same. For the tokenizers that ask for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prun {

// Characters that combine with one before them stand in the order of their classes.
struct CombiningRange {
  char32_t first, last;
  std::uint8_t order;
};
// A character that is the same as one or two others.
struct Decomposition {
  char32_t whole, first, second;  // second: 0 where there is one
  bool composes;                  // the two become it
};
std::span<const CombiningRange> combining_ranges();
std::span<const Decomposition> canonical_decompositions();

class NormalForm {
 public:
  NormalForm();
  // The text in normal form C: itself, or `made`, which is written then. It is UTF-8. A text may be cut in
  // front of any character that combines with none before it, as every letter of ASCII is.
  std::string_view of(std::string_view text, std::string& made) const;

 private:
  struct Letter {
    char32_t value;
    std::uint8_t order;
  };

  std::size_t first_doubtful(std::string_view text) const;
  void decompose(char32_t value, std::vector<Letter>& to) const;
  void compose(std::vector<Letter>& letters, std::string& to) const;
  char32_t composed(char32_t first, char32_t second) const;

  // By code point: 0 where it is as it is, whatever stands in front of it. Else it may combine, or is made of
  // others; those of `order` have that class.
  std::vector<std::uint8_t> doubtful_, order_;
  std::unordered_map<char32_t, const Decomposition*> parts_;
  std::unordered_map<std::uint64_t, char32_t> pairs_;
};

}  // namespace prun
