// Tokens as the package `tokenizers` makes them (tests/tokenize/make_fixtures), and what files are refused.
#include "tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "base/sha256.hpp"
#include "tokenizer_fixtures.hpp"

namespace prun::test {
namespace {

// What the package made of every character, as a digest, and of the texts.
struct Expected {
  std::size_t every_count = 0;
  std::string every_digest, decoded_digest;
  std::vector<Ids> texts;
};

Expected expected_of(const std::string& kind) {
  Expected expected;
  std::istringstream lines(fixture(kind + ".ids"));
  lines >> expected.every_count >> expected.every_digest >> expected.decoded_digest;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream row(line);
    Ids& ids = expected.texts.emplace_back();
    for (TokenId id; row >> id;) ids.push_back(id);
  }
  return expected;
}

std::string every_character() {
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string c = utf8(code);
    text += "a" + c + "b " + c + "1" + c + ".\n";
  }
  return text;
}

class TokenizerKinds : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tokenizer, TokenizerKinds,
                         testing::Values("gpt2", "llama3", "qwen2", "mistral", "mistral3", "gemma", "phi3",
                                         "smollm", "t5", "bert"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(TokenizerKinds, TextsOfEveryKindAreThePackages) {
  const Tokenizer tokenizer = tokenizer_of(GetParam());
  const std::vector<std::string> lines = texts();
  const Expected expected = expected_of(GetParam());
  ASSERT_EQ(expected.texts.size(), lines.size());
  ASSERT_GT(lines.size(), 200u);
  Encoder encoder(tokenizer);
  Ids together;
  std::string decoded;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(lines[i]), expected.texts[i]) << lines[i];
    decoded += (i ? "\n" : "") + tokenizer.decode(expected.texts[i]);
    together.clear();
    encoder.append(lines[i], together);  // with the words of all lines before
    EXPECT_EQ(together, expected.texts[i]) << lines[i];
  }
  EXPECT_EQ(sha256_hex({decoded.data(), decoded.size()}), expected.decoded_digest);
}

TEST_P(TokenizerKinds, EveryCharacterIsThePackages) {
  const Tokenizer tokenizer = tokenizer_of(GetParam());
  const Expected expected = expected_of(GetParam());
  const Ids ids = tokenizer.encode(every_character());
  EXPECT_EQ(ids.size(), expected.every_count);
  EXPECT_EQ(sha256_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)}),
            expected.every_digest);
}

TEST(Tokenizer, KnowsItsOwnTokens) {
  const Tokenizer llama = tokenizer_of("llama3");
  EXPECT_EQ(llama.find_added("<|begin|>"), 700);
  EXPECT_EQ(llama.find_added("begin"), std::nullopt);
  EXPECT_EQ(llama.end_of_text(), llama.find_added("<|endoftext|>"));
  EXPECT_EQ(Ids(llama.prefix().begin(), llama.prefix().end()), Ids{700});
  EXPECT_EQ(llama.size(), 707);
  EXPECT_EQ(llama.bytes(700), "<|begin|>");
  EXPECT_THROW(llama.bytes(707), Error);
  EXPECT_THROW(llama.bytes(-1), Error);
  EXPECT_TRUE(tokenizer_of("gpt2").prefix().empty());
  EXPECT_EQ(Tokenizer::load(PRUN_TEST_FIXTURES "/tokenizer/gpt2.json").size(), 701);
}

// Cuts each text where it may be cut; returns how often that was.
std::size_t expect_whole_of_pieces(const Tokenizer& tokenizer, const std::vector<std::string>& list) {
  std::size_t cuts = 0;
  std::string before;
  for (const std::string& text : list) {
    if (text.size() > 500) continue;
    const std::string whole = before + "\n" + text;
    for (std::size_t at = 1; at < whole.size(); ++at) {
      if (tokenizer.last_cut(whole, at) != at) continue;
      Ids pieces = tokenizer.encode(whole.substr(0, at));
      const Ids behind = tokenizer.encode(whole.substr(at));
      pieces.insert(pieces.end(), behind.begin(), behind.end());
      EXPECT_EQ(pieces, tokenizer.encode(whole)) << "cut at " << at << " of " << whole;
      ++cuts;
    }
    before = text;
  }
  return cuts;
}

TEST_P(TokenizerKinds, TokensOfPiecesAreThoseOfTheWhole) {
  const Tokenizer tokenizer = tokenizer_of(GetParam());
  const std::size_t cuts = expect_whole_of_pieces(tokenizer, texts());
  const bool spaces_in_tokens = tokenizer.find_added("in the").has_value();  // a cut could lie within one
  const std::vector<CuttingStep>& steps = tokenizer.tables().cutting;
  if (spaces_in_tokens || steps.empty() || !std::holds_alternative<CutWords>(steps.back()))
    EXPECT_EQ(cuts, 0u);
  else
    EXPECT_GT(cuts, 100u);
}

// Marks that begin a piece would join the end of the one before, if there were a letter.
TEST(Tokenizer, PiecesAreInNormalFormAsTheWholeIs) {
  for (const char* kind : {"gpt2", "llama3"}) {
    std::string json = fixture(std::string(kind) + ".json");
    const std::string off = "\"normalizer\":null";
    json.replace(json.find(off), off.size(), R"("normalizer":{"type":"NFC"})");
    const Tokenizer tokenizer(json, kind);
    EXPECT_EQ(tokenizer.encode("a\xCC\x81"), tokenizer.encode("\xC3\xA1"));
    std::vector<std::string> list = texts();
    for (const char* text :
         {"\xCC\x81x e\xCC\xA3 f\xCC\x81 \xCC\x81", "a e\xCC\x81\n\xCC\xA3\n\xE1\x85\xA1 b c"})
      list.push_back(text);
    EXPECT_GT(expect_whole_of_pieces(tokenizer, list), 100u);
  }
}

// A long run without spaces is one word; its time must not grow with the square of its length.
TEST(Tokenizer, AMegabyteWithoutASpace) {
  std::string text;
  while (text.size() < 1'000'000)
    text +=
        "\xE4\xB8\x80"
        "ab";
  const Tokenizer tokenizer = tokenizer_of("gpt2");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

std::string message_of(const std::string& json) {
  try {
    Tokenizer(json, "it.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Tokenizer, BrokenTextIsRefusedWithItsPlace) {
  const Tokenizer tokenizer = tokenizer_of("gpt2");
  for (const char* broken : {"ab\xFF", "ab\xE4\xB8", "ab\xED\xA0\x80", "ab\xC0\x80", "ab\xF5\x80\x80\x80"}) {
    try {
      tokenizer.encode(broken);
      ADD_FAILURE() << broken;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("not UTF-8 at byte 2"), std::string::npos) << error.what();
    }
  }
}

// A member of a file in place of another, as the package writes them.
std::string with_members(const std::string& file, const JsonValue& others) {
  const JsonValue root = parse_json(file, "it");
  JsonWriter out;
  out.begin_object();
  for (const auto& [name, value] : root.as_object().members()) {
    const JsonValue* const other = others.find(name);
    out.name(name).value(other ? *other : value);
  }
  return out.end_object().take();
}

// The fixture has ways of cutting with GPT-2's vocabulary; tools/maintainer/tokenizer-check --fixture writes
// it.
TEST(Tokenizer, TextsAreCutAsThePackageCutsThem) {
  std::vector<std::string> all = texts();
  for (char32_t first = 0; first < 0x20000; first += 64)
    if (first < 0xD800 || first >= 0xE000) {
      all.emplace_back();
      for (char32_t i = 0; i < 64; ++i) all.back() += utf8(first + i);
    }
  std::istringstream lines(fixture("cuts.jsonl"));
  int ways = 0;
  for (std::string line; std::getline(lines, line); ++ways) {
    const JsonValue way = parse_json(line, "cuts.jsonl");
    const Tokenizer tokenizer(with_members(fixture("gpt2.json"), way), way.at("name").as_string());
    Sha256 digest;
    for (const std::string& text : all) {
      const Ids ids = tokenizer.encode(text);
      digest.update(std::as_bytes(std::span(ids)));
      if (const std::size_t cut = tokenizer.last_cut(text, text.size() / 2)) {
        Ids pieces = tokenizer.encode(text.substr(0, cut));
        const Ids rest = tokenizer.encode(text.substr(cut));
        pieces.insert(pieces.end(), rest.begin(), rest.end());
        EXPECT_EQ(pieces, ids) << way.at("name").as_string() << ": " << text;
      }
    }
    EXPECT_EQ(digest.hex(), way.at("digest").as_string()) << way.at("name").as_string();
  }
  EXPECT_EQ(ways, 19);
}

TEST(Tokenizer, ExpressionsThatPrunDoesNotHaveAreRefusedByName) {
  const struct {
    const char *expression, *says;
  } cases[] = {{"a*", "matches a text without letters"},
               {"a|b?", "matches a text without letters"},
               {"(?<=a)b", "has '(?<='"},
               {"(?>a)", "has '(?>a'"},
               {"(ab)+", "has ')+'"},
               {"a{2}+", "has '}+'"},
               {"a{3,2}", "has a count that is none"},
               {"a{1001}", "has a count that is none"},
               {R"(\p{Greek}a)", R"(has '\p{Greek}')"},
               {R"(\bword)", R"(has '\b')"},
               {R"(\1a)", R"(has '\1')"},
               {"^a", "has '^'"},
               {"[a", "has a set that does not end"},
               {"[[:alpha:]]", "has '[:'"},
               {"[z-a]", "has a range that is none"},
               {"(?i:[a-c])", "has 'a range in any case'"},
               {"(a", "has a group that does not end"},
               {"a)", "has an end of a group without its beginning"},
               {R"(\p{L)", "has a property that does not end"},
               {R"(\x4g)", "has a code that is none"},
               {"[a&&b]", "has '&&'"}};
  for (const auto& [expression, says] : cases) try {
      const WordPattern pattern(expression, "it");
      ADD_FAILURE() << expression;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  std::string deep = "a";
  for (int i = 0; i < 30; ++i) deep = "(" + deep + ")";
  EXPECT_THROW(WordPattern(deep, "it"), Error);
}

// Rows of what may be taken in many ways are tried in a bounded number of them.
TEST(Tokenizer, AnExpressionThatTakesTooLongIsRefused) {
  const WordPattern pattern("a*a*a*a*a*b", "it");
  EXPECT_THROW(pattern.match(std::string(3000, 'a'), 0), Error);
  EXPECT_EQ(pattern.match("aab", 0), std::size_t{3});
}

// One part of a good file changed: what it asks for, and what it is told.
TEST(Tokenizer, WhatPrunDoesNotHaveIsRefusedByName) {
  const struct {
    const char *from, *to, *says;
  } cases[] = {
      {R"("type":"BPE")", R"("type":"Unigram")", "it.json: model: 'type' is 'Unigram'"},
      {R"("type":"BPE")", R"("type":"WordLevel")", "it.json: model: 'type' is 'WordLevel'"},
      {R"("dropout":null)", R"("dropout":0.1)", "'dropout' is set"},
      {R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")", "'end_of_word_suffix' is set"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Nmt"})", "it.json: normalizer: 'type' is 'Nmt'"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"})",
       "'precompiled_charsmap' is no precompiled map"},
      {R"("truncation":null)", R"("truncation":{"max_length":5})", "'truncation' is set"},
      {R"("single_word":false)", R"("single_word":1)", "'single_word' is neither true nor false"},
      {R"(\\p{N}{1,3})", R"(\\p{Z}{1,3})", "pre_tokenizer.0.pattern: 'Regex'"},
      {R"("behavior":"Isolated")", R"("behavior":"Kept")", "'behavior' is none of Removed, Isolated"},
      {R"("type":"Split")", R"("type":"UnicodeScripts")", "pre_tokenizer.0: 'type' is 'UnicodeScripts'"},
      {R"("id":700)", R"("id":699)", "'<|begin|>' has the id 699, where 700 would be its turn"},
      {R"("!":0)", R"("!":1)", "have the id 1"},
      {R"("!":0)", R"("!":4000000000)", "has no id that fits"},
      {R"("!":0)", R"("!!!":0)", "has no token for the byte 33"},
      {R"(["Ġ","Ġ"])", R"(["Ġ","Ġ!"])", "at 9, which are not tokens"},
      {R"(["Ġ","Ġ"])", R"("ĠĠ")", "has no pair of tokens at 9"},
      {R"("ignore_merges":true)", R"("ignore_merges":1)", "is neither true nor false"},
      {R"("ignore_merges":true)", R"("surprise":1)", "'surprise' is not a setting that prun knows"},
      {R"("version":)", R"("verzion":)", "'verzion' is not a setting that prun knows"},
  };
  const std::string good = fixture("llama3.json");
  EXPECT_EQ(message_of(good), "(no error)");
  for (const auto& [from, to, says] : cases) {
    std::string bent = good;
    const std::size_t at = bent.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    EXPECT_NE(message_of(bent.replace(at, std::strlen(from), to)).find(says), std::string::npos)
        << from << ": " << message_of(bent);
  }
}

// The same file with "a b" for ["a", "b"], as older ones have it.
std::string with_joined_merges(const std::string& file) {
  const JsonValue root = parse_json(file, "it");
  JsonWriter out;
  out.begin_object();
  for (const auto& [name, value] : root.as_object().members()) {
    out.name(name);
    if (name != "model") {
      out.value(value);
      continue;
    }
    out.begin_object().name("vocab").value(value.at("vocab")).name("merges").begin_array();
    for (const JsonValue& pair : value.at("merges").as_array())
      out.value(pair.as_array()[0].as_string() + " " + pair.as_array()[1].as_string());
    out.end_array().end_object();
  }
  return out.end_object().take();
}

TEST(Tokenizer, OlderFilesWriteMergesAsTexts) {
  const Tokenizer older(with_joined_merges(fixture("gpt2.json")), "older");
  for (const std::string& text : texts()) EXPECT_EQ(older.encode(text), tokenizer_of("gpt2").encode(text));
}

}  // namespace
}  // namespace prun::test
