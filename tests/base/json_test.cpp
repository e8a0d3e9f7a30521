// JSON: what is accepted, what is refused and at which byte, exact numbers, and round trips.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace prun::json_test {
namespace {

std::string rewritten(std::string_view text) { return JsonWriter().value(parse_json(text, "test")).take(); }

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "test", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "accepted";
}

TEST(JsonReader, ReadsATree) {
  const JsonValue root = parse_json(R"( {"a": [1, -2.5, "x", true, false, null], "b": {"c": {}}} )", "test");
  const JsonArray& items = root.at("a").as_array();
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(items[0].as_int64(), 1);
  EXPECT_EQ(items[1].as_double(), -2.5);
  EXPECT_EQ(items[2].as_string(), "x");
  EXPECT_TRUE(items[3].as_bool());
  EXPECT_FALSE(items[4].as_bool());
  EXPECT_TRUE(items[5].is_null());
  EXPECT_TRUE(root.at("b").at("c").as_object().members().empty());
  EXPECT_EQ(root.find("missing"), nullptr);
  EXPECT_THROW(root.at("missing"), Error);
}

TEST(JsonReader, KeepsTheOrderOfMembersAndFindsEach) {
  std::string text = "{";
  for (int i = 99; i >= 0; --i)
    text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + (i > 0 ? "," : "}");
  const JsonValue root = parse_json(text, "test");
  EXPECT_EQ(root.as_object().members().front().name, "k99");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(root.at("k" + std::to_string(i)).as_int64(), i);
}

TEST(JsonReader, KeepsIntegersExact) {
  const auto value = [](std::string_view text) { return parse_json(text, "test"); };
  EXPECT_EQ(value("9223372036854775807").as_int64(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(value("-9223372036854775808").as_int64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(value("18446744073709551615").as_uint64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(value("9007199254740993").as_int64(), 9007199254740993);
  EXPECT_EQ(value("9223372036854775808").kind(), JsonKind::unsigned_integer);
  EXPECT_THROW(value("9223372036854775808").as_int64(), Error);
  EXPECT_THROW(value("-1").as_uint64(), Error);
  EXPECT_THROW(value("1.0").as_int64(), Error);
}

TEST(JsonReader, ReadsReals) {
  const auto real = [](std::string_view text) { return parse_json(text, "test").as_double(); };
  EXPECT_EQ(real("1e3"), 1000.0);
  EXPECT_EQ(real("5e-324"), 5e-324);
  EXPECT_EQ(real("1.7976931348623157E+308"), std::numeric_limits<double>::max());
  EXPECT_EQ(real("18446744073709551616"), 18446744073709551616.0);
  EXPECT_EQ(real("-9223372036854775809"), -9223372036854775808.0);
  EXPECT_TRUE(std::signbit(real("-0")));
  EXPECT_EQ(real("1000000000000000019884624838656"), 1e30);
}

TEST(JsonReader, DecodesStrings) {
  const auto text = [](std::string_view json) { return parse_json(json, "test").as_string(); };
  EXPECT_EQ(text(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(text(R"("\u0041\u00e9\u20AC\ud83d\ude00")"), "A\u00e9\u20ac\U0001f600");
  EXPECT_EQ(text("\"\u00e9\u20ac\U0001f600\x7f\""), "\u00e9\u20ac\U0001f600\x7f");
  EXPECT_EQ(text(R"("\u0000")"), std::string(1, '\0'));
}

TEST(JsonReader, RefusesWhatIsNotJson) {
  const struct {
    std::string text;
    std::size_t offset;
  } cases[] = {
      {"", 0},
      {"  ", 2},
      {"{", 1},
      {"[1", 2},
      {"[1,]", 3},
      {"[,1]", 1},
      {"[1 2]", 3},
      {"{\"a\"}", 4},
      {"{\"a\":1,}", 7},
      {"{a:1}", 1},
      {"{'a':1}", 1},
      {"{\"a\" 1}", 5},
      {"1 2", 2},
      {"[1]]", 3},
      {"tru", 3},
      {"True", 0},
      {"nul", 3},
      {"NaN", 0},
      {"Infinity", 0},
      {"-Infinity", 1},
      {"01", 1},
      {"-01", 2},
      {"+1", 0},
      {".5", 0},
      {"1.", 2},
      {"1.e5", 2},
      {"1e", 2},
      {"1e+", 3},
      {"-", 1},
      {"0x10", 1},
      {"1e400", 4},
      {"[-1e999]", 6},
      {"\"a", 2},
      {"\"\\", 2},
      {"\"\\x\"", 2},
      {"\"\\u12\"", 5},
      {"\"\\u12g4\"", 5},
      {"\"\\u-123\"", 3},
      {"\"\n\"", 1},
      {std::string("\"a\0b\"", 5), 2},
      {std::string("1\0", 2), 1},
      {"// comment\n1", 0},
      {"\xef\xbb\xbf{}", 0},
      {R"("\ud800")", 7},
      {R"("\ud800\n")", 8},
      {R"("\ud800\u0041")", 12},
      {R"("\udc00")", 6},
      {"\"\x80\"", 1},
      {"\"\xc3\"", 2},
      {"\"\xc0\x80\"", 1},
      {"\"\xe0\x80\x80\"", 2},
      {"\"\xed\xa0\x80\"", 2},
      {"\"\xf0\x80\x80\x80\"", 2},
      {"\"\xf4\x90\x80\x80\"", 2},
      {"\"\xff\"", 1},
      {"\"\xe2\x82", 3},
      {R"({"a":1,"a":2})", 10},
      {R"({"a":1,"\u0061":2})", 15},
      {R"([{"x":{"b":1,"c":2,"b":3}}])", 22},
  };
  for (const auto& item : cases) {
    const std::string start = "test: byte " + std::to_string(item.offset) + ": ";
    EXPECT_EQ(error_of(item.text).substr(0, start.size()), start)
        << item.text << " -> " << error_of(item.text);
  }
}

TEST(JsonReader, SaysWhatIsWrongInOneShortLine) {
  EXPECT_EQ(error_of("[1 2]"), "test: byte 3: unexpected number literal; expected ']'");
  EXPECT_EQ(error_of(R"({"a":1,"a":2})"), "test: byte 10: the object has this name already (duplicate name)");
  EXPECT_EQ(error_of("1e400"), "test: byte 4: the number is outside of the range of double");
  EXPECT_EQ(
      error_of('"' + std::string(1'000'000, 'a') + "\n"),
      "test: byte 1000001: invalid string: control character U+000A (LF) must be escaped to \\u000A or \\n");
}

TEST(JsonReader, BoundsDepthValuesAndBytes) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(error_of(nested(65)), "accepted");
  EXPECT_NE(error_of(nested(66)).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of(std::string(10'000'000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_EQ(error_of("[1,2,3]", {.values = 4}), "accepted");
  EXPECT_NE(error_of("[1,2,3]", {.values = 3}).find("more than 3 values"), std::string::npos);
  EXPECT_NE(error_of("[1,2,3]", {.bytes = 6}).find("larger than the limit"), std::string::npos);
}

TEST(JsonReader, AccessorsNameBothKinds) {
  const JsonValue root = parse_json(R"({"a":"text"})", "test");
  try {
    root.at("a").as_int64();
    FAIL() << "a string was taken for an integer";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("found a string"), std::string::npos);
  }
  EXPECT_THROW(root.at("a").as_bool(), Error);
  EXPECT_THROW(root.at("a").as_double(), Error);
  EXPECT_THROW(root.at("a").as_array(), Error);
  EXPECT_THROW(root.at("a").as_object(), Error);
  EXPECT_THROW(root.as_string(), Error);
  EXPECT_THROW(JsonValue().as_uint64(), Error);
}

TEST(JsonWriter, WritesNestedScopes) {
  JsonWriter json;
  json.begin_object().member("step", 100).member("loss", 2.5).member("ok", true).member("name", "a\"b");
  json.name("empty").begin_array().end_array().name("list").begin_array();
  json.value(std::uint8_t{7}).value(-1).null().begin_object().end_object().end_array().end_object();
  EXPECT_EQ(json.take(),
            R"({"step":100,"loss":2.5,"ok":true,"name":"a\"b","empty":[],"list":[7,-1,null,{}]})");
  EXPECT_EQ(json.value(1).take(), "1");  // ready for the next text
}

TEST(JsonWriter, WritesShortestNumbers) {
  const auto text = [](auto number) { return JsonWriter().value(number).take(); };
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(0.1f), "0.1");
  EXPECT_EQ(text(1e300), "1e+300");
  EXPECT_EQ(text(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(text(-0.0), "-0");
  EXPECT_EQ(text(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(text(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(JsonWriter, WritesRealsWithAPoint) {
  JsonWriter json;
  json.begin_object().member("a.b", 1).name("c").begin_array().real(8).real(-0.5).real(1e-5).real(1e300);
  EXPECT_EQ(json.real(0).end_array().end_object().take(), R"({"a.b":1,"c":[8.0,-0.5,1e-05,1e+300,0.0]})");
  EXPECT_EQ(JsonWriter().real(3).take(), "3.0");
}

TEST(JsonWriter, NumbersReadBackTheSame) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bits = random();
    const auto real = std::bit_cast<double>(bits);
    const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(real)) {
      const double back = parse_json(JsonWriter().value(real).take(), "test").as_double();
      ASSERT_EQ(std::bit_cast<std::uint64_t>(back), bits);
    }
    if (std::isfinite(single)) {
      const double back = parse_json(JsonWriter().value(single).take(), "test").as_double();
      ASSERT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(back)), static_cast<std::uint32_t>(bits));
    }
    ASSERT_EQ(parse_json(JsonWriter().value(bits).take(), "test").as_uint64(), bits);
  }
}

TEST(JsonWriter, TreatsNonFiniteNumbersAsTold) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const float infinity = -std::numeric_limits<float>::infinity();
  EXPECT_THROW(JsonWriter().value(nan), Error);
  EXPECT_THROW(JsonWriter().value(infinity), Error);
  EXPECT_EQ(JsonWriter(NonFinite::write_null).begin_array().value(nan).value(infinity).end_array().take(),
            "[null,null]");
}

TEST(JsonWriter, WritesNonFiniteNumbersAsTexts) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  JsonWriter json(NonFinite::write_text);
  json.begin_array().value(std::nan("")).value(infinity).value(-infinity).end_array();
  EXPECT_EQ(json.take(), R"(["nan","inf","-inf"])");
}

TEST(JsonWriter, EscapesWhatItMust) {
  std::string all;
  for (int c = 0; c < 128; ++c) all.push_back(static_cast<char>(c));
  all += "\u00e9\U0001f600";
  const std::string text = JsonWriter().value(all).take();
  EXPECT_EQ(parse_json(text, "test").as_string(), all);
  EXPECT_EQ(text.substr(0, 20), R"("\u0000\u0001\u0002\)");
  EXPECT_NE(text.find(R"(\b\t\n\u000b\f\r\u000e)"), std::string::npos);
  EXPECT_THROW(JsonWriter().value("\xff"), Error);
  EXPECT_THROW(JsonWriter().begin_object().name("\xc3"), Error);
}

TEST(JsonWriter, ReplacesWhatIsNotUtf8ByteByByte) {
  const auto text = [](std::string_view value) {
    return JsonWriter(NonFinite::refuse, BrokenText::replace).value(value).take();
  };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(text("a\xff"), "\"a" + r + "\"");
  EXPECT_EQ(text("\xc3"), "\"" + r + "\"");
  EXPECT_EQ(text("\xc0\x80"), "\"" + r + r + "\"");                  // overlong
  EXPECT_EQ(text("\xe0\x80\x80"), "\"" + r + r + r + "\"");          // overlong
  EXPECT_EQ(text("\xed\xa0\x80"), "\"" + r + r + r + "\"");          // surrogate
  EXPECT_EQ(text("\xf4\x90\x80\x80"), "\"" + r + r + r + r + "\"");  // beyond 10FFFF
  EXPECT_EQ(text("\xe2\x82z"), "\"" + r + r + "z\"");
  EXPECT_EQ(text("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\"");
}

TEST(JsonWriter, RefusesWrongUse) {
  EXPECT_THROW(JsonWriter().take(), Error);
  EXPECT_THROW(JsonWriter().begin_object().take(), Error);
  EXPECT_THROW(JsonWriter().value(1).value(2), Error);
  EXPECT_THROW(JsonWriter().begin_object().value(1), Error);
  EXPECT_THROW(JsonWriter().begin_array().name("a"), Error);
  EXPECT_THROW(JsonWriter().begin_object().name("a").name("b"), Error);
  EXPECT_THROW(JsonWriter().begin_object().name("a").end_object(), Error);
  EXPECT_THROW(JsonWriter().begin_object().end_array(), Error);
  EXPECT_THROW(JsonWriter().end_object(), Error);
}

TEST(JsonRoundTrip, DamagedTextIsRefusedOrStable) {
  const std::string good =
      R"({"a":[1,-2.5e-3,"x\u00e9\n",true,null,{"b":18446744073709551615}],"c":{"d":[]}})";
  std::mt19937 random(11);
  int accepted = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, 1 + random() % 4);
    }
    std::string once;
    try {
      once = rewritten(text);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::bad_input);
      continue;
    }
    ++accepted;
    ASSERT_EQ(rewritten(once), once);
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace prun::json_test
