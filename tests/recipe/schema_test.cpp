// Option tables: what they say, and how broken ones are refused.
#include "recipe/schema.hpp"

#include <gtest/gtest.h>

#include "prun/error.hpp"

namespace prun::recipe {
namespace {

std::string complaint(const std::string& text) {
  try {
    parse_schema(text, "plugin 'x'");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
}

TEST(Schema, ReadsEveryType) {
  const Schema schema = parse_schema(R"(
    # a comment
    a | int    | 1_000  | 1..4096 | An int
    b | float  | 1e4    | 1..     | A float | with a bar
    c | bool   | true   |         | A bool
    d | string |        |         | A string
    e | choice | cosine | constant, linear,cosine | A choice
    f | size   | 80GiB  |         | A size
    g | ints   | [1, 2] | ..2     | Ints
    h | floats | [0.9, 1] | 0..1  | Floats
    i | strings | ["a,b", c] |    | Strings
    j.k | int  | required | 0..   | Nested
    l | int    | none   |         | Optional
  )",
                                     "plugin 'x'");
  ASSERT_EQ(schema.options().size(), 11u);
  EXPECT_EQ(std::get<std::int64_t>(schema.find("a")->default_value), 1000);
  EXPECT_EQ(std::get<double>(schema.find("b")->default_value), 1e4);
  EXPECT_EQ(schema.find("b")->help, "A float | with a bar");
  EXPECT_EQ(schema.find("b")->low, 1.0);
  EXPECT_FALSE(schema.find("b")->high);
  EXPECT_EQ(std::get<bool>(schema.find("c")->default_value), true);
  EXPECT_EQ(std::get<std::string>(schema.find("d")->default_value), "");
  EXPECT_EQ(schema.find("e")->choices, (std::vector<std::string>{"constant", "linear", "cosine"}));
  EXPECT_EQ(std::get<std::string>(schema.find("f")->default_value), "80GiB");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(schema.find("g")->default_value),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_FALSE(schema.find("g")->low);
  EXPECT_EQ(std::get<std::vector<double>>(schema.find("h")->default_value), (std::vector<double>{0.9, 1}));
  EXPECT_EQ(std::get<std::vector<std::string>>(schema.find("i")->default_value),
            (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(schema.find("j.k")->presence, Presence::required);
  EXPECT_EQ(schema.find("l")->presence, Presence::optional);
  EXPECT_EQ(schema.find("m"), nullptr);
}

TEST(Schema, QuotesTellTheWordFromItsMeaning) {
  const Schema schema = parse_schema("a | string | \"required\" | | Help\nb | string | 'none' | | Help", "x");
  EXPECT_EQ(std::get<std::string>(schema.find("a")->default_value), "required");
  EXPECT_EQ(std::get<std::string>(schema.find("b")->default_value), "none");
}

TEST(Schema, DescribesDefaultsAndRanges) {
  const Schema schema = parse_schema("a | choice | x | x,y | Help\nb | int | required | 1.. | Help", "x");
  EXPECT_EQ(describe_default(*schema.find("a")), "default \"x\"");
  EXPECT_EQ(describe_range(*schema.find("a")), "one of x, y");
  EXPECT_EQ(describe_default(*schema.find("b")), "required");
  EXPECT_EQ(describe_range(*schema.find("b")), "1..");
}

struct Broken {
  std::string text, complaint;
};

class BrokenSchema : public testing::TestWithParam<Broken> {};

TEST_P(BrokenSchema, IsRefusedWithItsPlace) {
  EXPECT_EQ(complaint(GetParam().text), "plugin 'x', options line " + GetParam().complaint);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, BrokenSchema,
    testing::Values(
        Broken{"a | int | 1",
               "1: expected 'key | type | default | range or choices | help', found 3 columns"},
        Broken{"\n\na | int | 1 | |", "3: option 'a' has no help; say what it means"},
        Broken{"A | int | 1 | | h",
               "1: key 'A' is not made of lower-case letters, digits and '_', or is longer than "
               "64 letters or 4 parts"},
        Broken{"a..b | int | 1 | | h",
               "1: key 'a..b' is not made of lower-case letters, digits and '_', or is longer "
               "than 64 letters or 4 parts"},
        Broken{"a | integer | 1 | | h",
               "1: type 'integer' is none of int, float, bool, string, choice, size, ints, "
               "floats, strings, names"},
        Broken{"a | int | | | h", "1: default '' of 'a' is not of type int"},
        Broken{"a | int | 1.5 | | h", "1: default '1.5' of 'a' is not of type int"},
        Broken{"a | float | nan | | h", "1: default 'nan' of 'a' is not of type float"},
        Broken{"a | int | 99999999999999999999 | | h",
               "1: default '99999999999999999999' of 'a' is not of type int"},
        Broken{"a | int | 9 | 1..8 | h", "1: default '9' of 'a' is not among the values it allows"},
        Broken{"a | floats | [0, 2] | 0..1 | h",
               "1: default '[0, 2]' of 'a' is not among the values it allows"},
        Broken{"a | floats | [0, 1 | 0..1 | h", "1: default '[0, 1' of 'a' is not of type floats"},
        Broken{"a | choice | z | x,y | h", "1: default 'z' of 'a' is not among the values it allows"},
        Broken{"a | choice | x | | h", "1: choice 'a' has an empty name among its choices"},
        Broken{"a | choice | x | x,x | h", "1: choice 'a' lists 'x' twice"},
        Broken{"a | size | many | | h", "1: default 'many' of 'a' is not among the values it allows"},
        Broken{"a | int | 1 | 1-8 | h", "1: range '1-8' is not of the form low..high, low.. or ..high"},
        Broken{"a | int | 1 | .. | h", "1: range '..' is not of the form low..high, low.. or ..high"},
        Broken{"a | int | 1 | x..8 | h", "1: bound 'x' of the range is not an int"},
        Broken{"a | int | 1 | 8..1 | h", "1: range '8..1' is empty"},
        Broken{"a | bool | true | 0..1 | h", "1: a bool takes no range"},
        Broken{"a | int | 1 | | h\na | int | 1 | | h", "2: option 'a' collides with option 'a' above it"},
        Broken{"a | int | 1 | | h\na.b | int | 1 | | h", "2: option 'a.b' collides with option 'a' above it"},
        Broken{"a | int | 1 | | \x1b[31m", "1: not printable UTF-8"},
        Broken{"a | int | 1 | | \xff", "1: not printable UTF-8"},
        Broken{"a | int | 1 | | " + std::string(1024, 'h'), "1: longer than 1024 bytes"}));

TEST(Schema, BoundsItsSize) {
  std::string many;
  for (int i = 0; i < 257; ++i) many += "k" + std::to_string(i) + " | int | 1 | | h\n";
  EXPECT_EQ(complaint(many), "plugin 'x', options line 257: more than 256 options");
  EXPECT_EQ(complaint(std::string(65537, '\n')), "plugin 'x': the option table is longer than 65536 bytes");
}

TEST(Schema, SimilarKeysDoNotCollide) {
  EXPECT_FALSE(keys_collide("a", "ab"));
  EXPECT_FALSE(keys_collide("a.b", "a.c"));
  EXPECT_TRUE(keys_collide("a.b.c", "a"));
  EXPECT_EQ(complaint("a | int | 1 | | h\nab | int | 1 | | h"), "");
}

}  // namespace
}  // namespace prun::recipe
