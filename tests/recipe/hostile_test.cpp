// Input made to hurt: it must be refused quickly, with a message and without a crash.
#include <gtest/gtest.h>

#include "recipe/fixture.hpp"
#include "recipe/toml_reader.hpp"

namespace prun::test {
namespace {

std::string repeat(std::string_view piece, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

TEST(Hostile, DeepNestingIsRefused) {
  const std::string deep_key = "r.toml:1:32: error: key nests deeper than 16 tables";
  EXPECT_EQ(complaint("a" + repeat(".a", 300000) + " = 1").substr(0, deep_key.size()), deep_key);
  EXPECT_NE(complaint("[a" + repeat(".a", 300000) + "]").find("deeper than 16"), std::string::npos);
  EXPECT_NE(complaint("a = { a" + repeat(".a", 300000) + " = 1 }").find("deeper than 16"), std::string::npos);
  EXPECT_NE(complaint("'#' = 1\n\"\\\"\"" + repeat(".a", 300000) + " = 1").find("deeper than 16"),
            std::string::npos);
  EXPECT_NE(complaint("a = " + repeat("[", 500000)).find("exceeded maximum nested value depth of 16"),
            std::string::npos);
  EXPECT_NE(complaint("a = " + repeat("{ a = ", 100000)).find("exceeded maximum"), std::string::npos);
}

TEST(Hostile, DotsInTextAndCommentsAreNoNesting) {
  const std::string dots = repeat("a.", 40);
  for (const std::string& harmless :
       {"# " + dots, "a = \"" + dots + "\"", "a = '" + dots + "'", "a = \"\"\"x\n" + dots + "\"\"\"\"\"",
        "a = '''x\n'" + dots + "'''", "a = \"\\\"" + dots + "\"", std::string("# don't\na = 1"),
        "a = [" + repeat("0.5, ", 99) + "]"})
    EXPECT_FALSE(recipe::precheck_toml(harmless)) << harmless;
  EXPECT_TRUE(recipe::precheck_toml("x = \"" + dots + "\"\n" + dots));
}

TEST(Hostile, HeadersNeedAName) {
  const std::string needs_name =
      "error: TOML syntax, table header: expected a name of letters, digits, '_' and '-', or one in quotes\n";
  EXPECT_EQ(complaint("a = [\n[1],\n [[2]]]\n [[ .x ]]\n"),
            "r.toml:4:5: " + needs_name + "  4 |  [[ .x ]]\n    |     ^");
  EXPECT_EQ(complaint("[.]"), "r.toml:1:2: " + needs_name + "  1 | [.]\n    |  ^");
  EXPECT_EQ(complaint("x = 1\n[\n"), "r.toml:2:2: " + needs_name + "  2 | [\n    |  ^");
  for (const char* harmless :
       {"[a]", "[ \"ü\" ]", "[['x']]", "a = [\n[.5]]", "a = \"[\"", "# [.", "a = [ # ]\n [.5]]"})
    EXPECT_FALSE(recipe::precheck_toml(harmless)) << harmless;
}

TEST(Hostile, LettersBeyondAsciiNeedQuotes) {
  const std::string unquoted =
      "error: TOML syntax: a character beyond ASCII stands outside quotes; put the name or text in them\n";
  EXPECT_EQ(complaint("[größe]"), "r.toml:1:4: " + unquoted + "  1 | [größe]\n    |    ^");
  EXPECT_EQ(complaint("# é\na = \"é\"\nb = ü"), "r.toml:3:5: " + unquoted + "  3 | b = ü\n    |     ^");
  EXPECT_EQ(complaint("a = \"\"\"é \\\n  é\"\"\""),
            "r.toml:2:3: error: after a backslash that continues a line, the text must go on with an ASCII "
            "character\n"
            "  2 |   é\"\"\"\n    |   ^");
  for (const char* harmless :
       {"a = 'é' # é", "a = '''\\\né'''", "a = \"\"\"\\\n e \\\n e é\"\"\"", "\xEF\xBB\xBF a = 1"})
    EXPECT_FALSE(recipe::precheck_toml(harmless)) << harmless;
}

// A fuzzer found the last one: to the library it is a number, which it reads on to a letter that it cannot
// take.
TEST(Hostile, QuotesWithinNamesAndValuesAreRefused) {
  const std::string within =
      "error: TOML syntax: a quote stands within a name or value; put all of it in quotes\n";
  EXPECT_EQ(complaint("a = 3\"x\""), "r.toml:1:6: " + within + "  1 | a = 3\"x\"\n    |      ^");
  EXPECT_NE(complaint("a\"b\" = 1").find(within), std::string::npos);
  EXPECT_NE(complaint("\"`\"=3\"`\"3\"\x18=\xCC\xA1"
                      "3\"`\"")
                .find(within),
            std::string::npos);
  for (const char* harmless : {"\"a\".'b' = ['x',\"y\",'''z''']", "a = {'b'=1,\"c\"=2}", "['a'.\"b\"]",
                               "a = \"\"\"x\"\"\"\r\n'b' = 1"})
    EXPECT_FALSE(recipe::precheck_toml(harmless)) << harmless;
}

TEST(Hostile, MassesOfKeysAreRefused) {
  std::string keys = "[mesh]\n";
  for (int i = 0; i < 60000; ++i) keys += "a" + std::to_string(i) + " = 1\n";
  EXPECT_EQ(complaint(keys), "r.toml: error: more than 4096 keys");
  std::string unknown = "[run]\n";
  for (int i = 0; i < 4000; ++i) unknown += "unknown_key_of_some_length_" + std::to_string(i) + " = 1\n";
  EXPECT_NE(complaint(unknown).find(" more"), std::string::npos);
  EXPECT_EQ(complaint(std::string(1024 * 1024 + 1, ' ')),
            "r.toml: error: the recipe is larger than 1048576 bytes");
}

TEST(Hostile, MessagesAreSafeOnATerminal) {
  const std::string text =
      complaint(good_with("micro = 2", "micro = 2\n\"\\u001b[31m\\u202e" + repeat("x", 100000) + "\" = 1"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 1000u);
}

TEST(Hostile, TheCorpusIsRefusedInWords) {
  for (const std::string& text : {
           std::string("\0", 1),
           std::string("[run]\nname = \"\0\"", 16),
           std::string("\xff\xfe"),
           std::string("\xEF\xBB\xBF"),
           std::string("=\n"),
           std::string("[[]]"),
           std::string("[.]"),
           std::string("a = \"\\u"),
           std::string("a = '''"),
           std::string("a = \"\"\""),
           std::string("[run]\r"),
           std::string("a = 0x"),
           std::string("a = 1e999999999"),
           std::string("a = -"),
           std::string("a = 9999-99-99"),
           std::string("run = 1\n[run]"),
           std::string("[run]\n[run.name]\n"),
           std::string("run = [[[]]]"),
           std::string("[[optimizer.group]]\n[[optimizer.group]]"),
           std::string("optimizer = [[]]"),
           std::string("'include' = {}"),
           std::string("include = [[]]"),
           std::string("\"optimizer.group\" = 1"),
           std::string("[mesh]\n\"\" = 1"),
           std::string("[model]\nplugin = \"\""),
           std::string("[comm]\nx = []"),
       }) {
    EXPECT_NE(complaint(text), "") << text;
  }
}

TEST(Hostile, OverridesToo) {
  for (const std::string& set :
       {std::string(), std::string("="), std::string("."), std::string(".=."),
        std::string("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1"), std::string("strategy.99999999999999999999.x=1"),
        std::string("strategy.1000000.x=1"), std::string("run.steps=\xff"),
        std::string("run.steps=") + std::string(1, '\0'), "run.name=" + std::string(100000, 'x'),
        std::string("mesh.=1"), std::string("run=1"), std::string("mesh.1=1"), std::string("include.0=x")})
    EXPECT_NE(complaint(good_recipe, {set}), "") << set.substr(0, 60);
}

}  // namespace
}  // namespace prun::test
