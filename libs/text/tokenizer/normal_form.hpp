// Computes Unicode's normal forms: characters that combine are put in their order, and together or apart, so
// that texts that look the same are the same. Some tokenizers ask for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prun {

// Lists characters that combine with one before them; they are ordered by their classes.
struct CombiningRange {
  char32_t first, last;
  std::uint8_t order;
};
// Describes a character that is the same as one or two others.
struct Decomposition {
  char32_t whole, first, second;  // second: 0 where there is one
  bool composes;                  // the two become it
};
// Describes a character that differs from these, which are apart and in order, in its looks alone.
struct CompatibleLetters {
  char32_t whole;
  std::u32string_view letters;
};
std::span<const CombiningRange> combining_ranges();
std::span<const Decomposition> canonical_decompositions();
std::span<const CompatibleLetters> compatible_letters();

// C: together; D: apart; K: without what is looks alone.
enum class NormalKind : std::uint8_t { c, d, kc, kd };

void append_utf8(std::string& to, char32_t value);

class NormalForm {
 public:
  explicit NormalForm(NormalKind kind = NormalKind::c);
  NormalKind kind() const { return kind_; }
  // Returns the text in this form: itself, or `made`, which is written then. It is UTF-8. A text may be cut
  // before any character that combines with none before it, as every letter of ASCII is.
  std::string_view of(std::string_view text, std::string& made) const;
  // Says whether the character may combine with one before it, or is made of others.
  bool is_doubtful(char32_t value) const { return doubtful_[value] != 0; }

 private:
  struct Letter {
    char32_t value;
    std::uint8_t order;
  };

  void doubt_what_is_made_of_others();
  std::size_t first_doubtful(std::string_view text) const;
  void decompose(char32_t value, std::vector<Letter>& to) const;
  static void put_in_order(std::vector<Letter>& letters);
  void compose(std::vector<Letter>& letters) const;
  char32_t composed(char32_t first, char32_t second) const;

  NormalKind kind_;
  unsigned char plain_below_;  // letters that begin with a byte below it are as they are
  // By code point: 0 where it is as it is, whatever stands in front of it. Else it may combine, or is made of
  // others; those of `order` have that class.
  std::vector<std::uint8_t> doubtful_, order_;
  std::unordered_map<char32_t, const Decomposition*> parts_;
  std::unordered_map<char32_t, std::u32string_view> looks_;
  std::unordered_map<std::uint64_t, char32_t> pairs_;
};

}  // namespace prun
