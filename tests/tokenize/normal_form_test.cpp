// Normal forms as the package `tokenizers` makes it (tests/tokenize/make_fixtures).
#include "tokenizer/normalizer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "base/sha256.hpp"
#include "tokenizer_fixtures.hpp"

namespace prun::test {
namespace {

std::string normal(std::string_view text, const NormalForm& form) {
  std::string made;
  return std::string(form.of(text, made));
}

std::string normal(std::string_view text) {
  static const NormalForm form;
  return normal(text, form);
}

// Scripts whose characters combine, and what may stand behind them, two at a time.
std::string all_combinations(std::size_t& count, NormalKind kind) {
  const NormalForm form(kind);
  constexpr std::pair<char32_t, char32_t> combining[] = {{0x20, 0x3100},     {0xA000, 0xD7B0},
                                                         {0xF900, 0xFE30},   {0x10000, 0x12000},
                                                         {0x1D100, 0x1D200}, {0x2F800, 0x2FA20}};
  constexpr std::array<char32_t, 16> behind = {0x41,  0x300, 0x301, 0x308,  0x323,  0x327,  0x338,  0x345,
                                               0x5B0, 0x93C, 0x9BE, 0x1161, 0x11A8, 0x3099, 0xAC00, 0x110BA};
  std::string all;
  count = 0;
  for (const auto& [first, last] : combining)
    for (char32_t code = first; code < last; ++code)
      for (std::size_t i = 0; i < behind.size(); ++i, ++count)
        all += normal(utf8(code) + utf8(behind[i]) + utf8(behind[(i + code) % behind.size()]), form);
  return all;
}

TEST(NormalForm, WhatCombinesIsAsThePackageHasIt) {
  std::istringstream expected(fixture("normal_forms"));
  for (const NormalKind kind : {NormalKind::c, NormalKind::d, NormalKind::kc, NormalKind::kd}) {
    std::size_t count = 0, wanted = 0;
    std::string digest;
    expected >> wanted >> digest;
    const std::string all = all_combinations(count, kind);
    EXPECT_EQ(count, wanted);
    EXPECT_EQ(sha256_hex({all.data(), all.size()}), digest) << static_cast<int>(kind);
  }
}

TEST(NormalForm, WhatStandsBeforeAndBehindStays) {
  EXPECT_EQ(normal("plain text, \xE4\xB8\x80"), "plain text, \xE4\xB8\x80");
  EXPECT_EQ(normal("a\xCC\x81"), "\xC3\xA1");
  EXPECT_EQ(normal("xa\xCC\x81y a\xCC\x81z"), "x\xC3\xA1y \xC3\xA1z");
  EXPECT_EQ(normal("\xCC\x81"), "\xCC\x81");
  EXPECT_EQ(normal("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8."), "\xEA\xB0\x81.");  // Hangul
  EXPECT_EQ(normal("e\xCC\x81\xCC\xA3"), "\xE1\xBA\xB9\xCC\x81");               // reordered
  EXPECT_EQ(normal("\xE2\x84\xAB"), "\xC3\x85");                                // Angstrom
  EXPECT_EQ(normal(""), "");
}

// Marks without end behind one letter: their order takes no square of their number.
TEST(NormalForm, AMegabyteOfMarks) {
  std::string text = "a";
  while (text.size() < 1'000'000) text += "\xCC\x81\xCC\xA3";
  const std::string once = normal(text);
  EXPECT_EQ(once.size(), text.size());
  EXPECT_EQ(normal(once), once);
}

}  // namespace
}  // namespace prun::test
