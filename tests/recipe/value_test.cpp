// Values from text and back.
#include "recipe/value.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace prun::recipe {
namespace {

TEST(ParseSize, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("80GiB"), 80LL << 30);
  EXPECT_EQ(parse_size(" 1.5 TiB "), 3LL << 39);
  EXPECT_EQ(parse_size("2MB"), 2000000);
  EXPECT_EQ(parse_size("4096"), 4096);
  EXPECT_EQ(parse_size("7B"), 7);
  for (const char* bad : {"", "GiB", "-1GiB", "1 gib", "1..5GiB", "99999999TiB", "1e3GiB", "1GiB x"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(ParseValue, ReadsNumbersStrictly) {
  EXPECT_EQ(parse_value(OptionType::integer, " +1_000 "), Value(std::int64_t{1000}));
  EXPECT_EQ(parse_value(OptionType::integer, "-9223372036854775808"),
            Value(std::numeric_limits<std::int64_t>::min()));
  for (const char* bad :
       {"", "+", "+-1", "++1", "1_", "_1", "1__0", "0x10", "1.0", "1 2", "9223372036854775808"})
    EXPECT_FALSE(parse_value(OptionType::integer, bad)) << bad;
  EXPECT_EQ(parse_value(OptionType::real, "3e-4"), Value(3e-4));
  EXPECT_EQ(parse_value(OptionType::real, "2"), Value(2.0));
  for (const char* bad : {"nan", "inf", "-inf", "1e999", "abc", ""})
    EXPECT_FALSE(parse_value(OptionType::real, bad)) << bad;
}

TEST(ParseValue, TakesStringsWithAndWithoutQuotes) {
  EXPECT_EQ(parse_value(OptionType::string, "plain text"), Value(std::string("plain text")));
  EXPECT_EQ(parse_value(OptionType::string, R"("a\"b\\\n")"), Value(std::string("a\"b\\\n")));
  EXPECT_EQ(parse_value(OptionType::string, R"('a\b')"), Value(std::string("a\\b")));
  EXPECT_EQ(parse_value(OptionType::string, "\""), Value(std::string("\"")));
  EXPECT_FALSE(parse_value(OptionType::string, R"("a"b")"));
  EXPECT_FALSE(parse_value(OptionType::string, R"("a\x")"));
}

TEST(ParseValue, ReadsLists) {
  EXPECT_EQ(parse_value(OptionType::integers, "[1, 2,]"), Value(std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(parse_value(OptionType::integers, "1,2"), Value(std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(parse_value(OptionType::reals, "[]"), Value(std::vector<double>{}));
  EXPECT_EQ(parse_value(OptionType::strings, R"(["a,b", 'c"', d])"),
            Value(std::vector<std::string>{"a,b", "c\"", "d"}));
  for (const char* bad : {"[1", "1]", "[1,,2]", "[x]", ",1"})
    EXPECT_FALSE(parse_value(OptionType::integers, bad)) << bad;
}

TEST(ToToml, WritesTheShortestExactForm) {
  EXPECT_EQ(to_toml(Value(3e-4)), "0.0003");
  EXPECT_EQ(to_toml(Value(1.0)), "1.0");
  EXPECT_EQ(to_toml(Value(1e22)), "1e+22");
  EXPECT_EQ(to_toml(Value(0.1 + 0.2)), "0.30000000000000004");
  EXPECT_EQ(to_toml(Value(std::string("a\"\\\n\t\x01\x7f"))), R"("a\"\\\n\t\u0001\u007F")");
  EXPECT_EQ(to_toml(Value(std::vector<double>{0.9, 1})), "[0.9, 1.0]");
  EXPECT_EQ(to_toml(Value(std::vector<std::string>{})), "[]");
}

}  // namespace
}  // namespace prun::recipe
