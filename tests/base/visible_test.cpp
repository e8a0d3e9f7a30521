// What text of others looks like by the time somebody reads it.
#include "prun/visible.hpp"

#include <gtest/gtest.h>

#include "base/json.hpp"
#include "base/text.hpp"

namespace prun::test::visible_test {
namespace {

TEST(Visible, WritesOutWhatIsNoLetter) {
  EXPECT_EQ(visible("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(visible("\r\n\t\x7f\x01"), "\\r\\n\\t\\x7f\\x01");
  EXPECT_EQ(visible("\u0085\u009b1m\u2028\u2029\u202e\u2066\ufeff\u200f\u061c\U000e0041"),
            "\\u0085\\u009b1m\\u2028\\u2029\\u202e\\u2066\\ufeff\\u200f\\u061c\\U000e0041");
  EXPECT_EQ(visible(std::string_view("\0", 1)), "\\x00");
}

TEST(Visible, WritesOutBytesThatAreNoLetter) {
  EXPECT_EQ(visible("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(visible("\x9b"
                    "31m"),
            "\\x9b31m");
  EXPECT_EQ(visible("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(visible("\xc0\xaf\xed\xa0\x80"), "\\xc0\\xaf\\xed\\xa0\\x80");
}

TEST(Visible, LettersOfAllLanguagesStay) {
  for (const char* text :
       {"größer", "字符", "שלום", "مرحبا", "क्‍ष", "می‌خواهم", "👩‍🚀", "a b\\n"})
    EXPECT_EQ(visible(text), text);
}

TEST(Visible, LinesAndTabsOfATextStay) {
  EXPECT_EQ(visible_lines("a\tb\n\x1b[2J\r\n"), "a\tb\n\\x1b[2J\\r\n");
}

// Every letter there is: what is written out has none that is written out again.
TEST(Visible, WrittenOutItStaysAsItIs) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second), 'x'};
      ASSERT_EQ(visible(visible(text)), visible(text));
      ASSERT_EQ(visible_lines(visible_lines(text)), visible_lines(text));
      ASSERT_TRUE(valid_utf8(visible(text)));
    }
}

TEST(Visible, NamesInMessagesAreOneLine) {
  EXPECT_EQ(in_quotes("a\nprun: done\x1b[2J"), "'a\\nprun: done\\x1b[2J'");
  EXPECT_EQ(printable("\u202e\u202e\u202e", 2), "\\u202e\\u202e...");
}

// JSON spells them by their numbers, and they come back.
TEST(Visible, JsonHasNoneOfThem) {
  const std::string all = "\x1b\x7f\u0085\u009b\u2028\u202e\ufeff\U000e0041é\U0001f600";
  const std::string written = JsonWriter().value(all).take();
  EXPECT_EQ(written, "\"\\u001b\\u007f\\u0085\\u009b\\u2028\\u202e\\ufeff\\udb40\\udc41é\U0001f600\"");
  EXPECT_EQ(parse_json(written, "test").as_string(), all);
}

}  // namespace
}  // namespace prun::test::visible_test
