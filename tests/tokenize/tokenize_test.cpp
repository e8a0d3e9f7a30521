// Files to token sets: the same whatever the threads and the pieces, read back as the data plugin reads them.
#include "tokenize/tokenize.hpp"

#include <numeric>

#include "lines/text_reader.hpp"
#include "support/packed_text.hpp"
#include "support/temp_folder.hpp"
#include "tests/support/fake_options.hpp"
#include "tokenizer_fixtures.hpp"
#include "tokens_data.hpp"

namespace prun::test {
namespace {

// All tokens of a set, through the plugin.
Ids tokens_in(const std::string& prefix) {
  FakeOptions options{{"path", prefix}, {"format", "megatron"}, {"index", "full"}};
  tokens::TokensData data(options.options());
  const std::int64_t count = data.open(1).tokens;
  Ids ids, token(1), next(1);
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    data.read(i, token.data(), next.data());
    ids.push_back(token[0]);
  }
  ids.push_back(next[0]);
  return ids;
}

std::vector<std::int32_t> lengths_in(const TempFolder& folder, const std::string& prefix) {
  const std::string idx = read_file(folder / (prefix + ".idx"));
  std::uint64_t count = 0;
  std::memcpy(&count, idx.data() + 18, sizeof count);
  std::vector<std::int32_t> lengths(count);
  std::memcpy(lengths.data(), idx.data() + 34, count * sizeof(std::int32_t));
  return lengths;
}

std::string json_line(const std::string& text, const char* key = "text") {
  JsonWriter out;
  return out.begin_object().member("id", 1).member(key, text).end_object().take() + "\n";
}

class Tokenize : public testing::Test {
 protected:
  TokenizeRequest request(std::vector<std::string> files) const {
    TokenizeRequest request;
    for (const std::string& file : files) request.files.emplace_back(file);
    request.prefix = folder_ / "set";
    request.end_of_text = *tokenizer_.end_of_text();
    return request;
  }
  std::string refusal(const TokenizeRequest& request) const {
    try {
      tokenize(tokenizer_, request);
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(folder_ / "set.bin"));
      EXPECT_FALSE(std::filesystem::exists(folder_ / "set.idx"));
      return error.what();
    }
    return "(no error)";
  }

  const TempFolder folder_;
  Tokenizer tokenizer_ = tokenizer_of("llama3");
};

// Lines and texts, in pieces of a few bytes and in large ones.
TEST_F(Tokenize, CompressedFilesGiveTheSameTokens) {
  std::string lines, prose;
  for (int i = 0; i < 4; ++i)
    for (const std::string& text : texts()) lines += json_line(text), prose += text + "\n";
  const auto tokens_of = [&](const std::string& first, const std::string& second, std::size_t piece) {
    TokenizeRequest asked = request({first, second});
    asked.threads = 2;
    asked.piece_bytes = piece;
    tokenize(tokenizer_, asked);
    const Ids tokens = tokens_in(folder_ / "set");
    for (const char* ending : {"set.bin", "set.idx"}) std::filesystem::remove(folder_ / ending);
    return tokens;
  };
  const Ids expected = tokens_of(folder_.write("a.jsonl", lines), folder_.write("b.txt", prose), 1 << 20);
  const std::vector<PackedText> of_lines = packed_ways(lines), of_prose = packed_ways(prose);
  for (std::size_t i = 0; i < of_lines.size(); ++i)
    for (const std::size_t piece : {std::size_t{40}, std::size_t{1} << 20})
      EXPECT_EQ(tokens_of(folder_.write("a.jsonl" + of_lines[i].ending, of_lines[i].bytes),
                          folder_.write("b.txt" + of_prose[i].ending, of_prose[i].bytes), piece),
                expected)
          << of_lines[i].ending;
}

const std::string texts_in_parquet = PRUN_TEST_FIXTURES "/tokenizer/texts.parquet";

// The text of each row, and nothing of its other columns.
TEST_F(Tokenize, AParquetFileGivesTheTokensOfItsJsonLines) {
  if (PRUN_TEST_PARQUET == 0) GTEST_SKIP() << "built without Apache Arrow";
  for (const std::size_t piece : {std::size_t{40}, std::size_t{1} << 20}) {
    std::vector<Ids> tokens;
    for (const std::string& file :
         {std::string(PRUN_TEST_FIXTURES "/tokenizer/texts.jsonl"), texts_in_parquet}) {
      TokenizeRequest asked = request({file});
      asked.piece_bytes = piece;
      tokenize(tokenizer_, asked);
      tokens.push_back(tokens_in(folder_ / "set"));
      for (const char* ending : {"set.bin", "set.idx"}) std::filesystem::remove(folder_ / ending);
    }
    EXPECT_GT(tokens[0].size(), 5000u);
    EXPECT_EQ(tokens[0], tokens[1]);
  }
}

// As JSON lines have them: numbers, lists and members, and without what JSON cannot say.
TEST_F(Tokenize, RowsOfParquetAreJsonLines) {
  if (PRUN_TEST_PARQUET == 0) GTEST_SKIP() << "built without Apache Arrow";
  LineReader lines(texts_in_parquet);
  const std::vector<std::string> expected = texts();
  std::string line;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(lines.next(line)) << i;
    const JsonValue row = parse_json(line, "texts.parquet");
    EXPECT_EQ(row.at("text").as_string(), expected[i]);
    EXPECT_EQ(row.at("number").as_int64(), static_cast<std::int64_t>(i));
    EXPECT_EQ(row.at("of").at("url").as_string(), "a\"b\\\x01");
    EXPECT_EQ(row.find("when"), nullptr);
    EXPECT_EQ(row.find("scores") != nullptr, i % 3 == 0);
  }
  EXPECT_FALSE(lines.next(line));
}

TEST_F(Tokenize, WhatIsNoParquetIsRefused) {
  const std::string bytes = fixture("texts.parquet");
  for (const std::string& broken :
       {std::string("no parquet"), bytes.substr(0, bytes.size() / 2), std::string()}) {
    const std::string said = refusal(request({folder_.write("a.parquet", broken)}));
    EXPECT_NE(said.find(PRUN_TEST_PARQUET == 0 ? "a.parquet: this prun was built without Apache Arrow"
                                               : "a.parquet: is damaged or no Parquet file ("),
              std::string::npos)
        << said;
  }
}

// And nothing is left of what had been written.
TEST_F(Tokenize, ACompressedFileThatIsCutShortIsRefused) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += json_line("line " + std::to_string(i));
  for (const PackedText& way : packed_ways(lines)) {
    const std::string file = folder_.write("a.jsonl" + way.ending, way.bytes.substr(0, way.bytes.size() / 2));
    EXPECT_NE(refusal(request({file})).find("a.jsonl" + way.ending + ": is cut short at byte "),
              std::string::npos);
  }
}

// Lines of JSON and texts that are one document each, in pieces of a few bytes and in one.
TEST_F(Tokenize, IsTheSameWhateverTheThreadsAndThePieces) {
  std::string lines, prose;
  for (const std::string& text : texts()) lines += json_line(text), prose += text + "\n";
  const std::vector<std::string> files = {folder_.write("a.jsonl", lines), folder_.write("b.txt", prose),
                                          folder_.write("empty.txt", ""), folder_.write("c.txt", "the end")};
  for (const char* kind : {"gpt2", "llama3", "qwen2"}) {
    tokenizer_ = tokenizer_of(kind);
    Ids expected;
    std::vector<std::int32_t> lengths;
    const auto add = [&](const std::string& text) {
      if (text.empty()) return;
      Ids ids(tokenizer_.prefix().begin(), tokenizer_.prefix().end());
      const Ids own = tokenizer_.encode(text);
      ids.insert(ids.end(), own.begin(), own.end());
      if (ids.back() != *tokenizer_.end_of_text()) ids.push_back(*tokenizer_.end_of_text());
      expected.insert(expected.end(), ids.begin(), ids.end());
      lengths.push_back(static_cast<std::int32_t>(ids.size()));
    };
    for (const std::string& text : texts()) add(text);
    add(prose);
    add("the end");
    for (const auto& [threads, piece] : {std::pair{1, 1 << 20}, {1, 64}, {3, 64}, {4, 1000}}) {
      TokenizeRequest wanted = request(files);
      wanted.prefix = folder_ / (std::string(kind) + std::to_string(threads) + "-" + std::to_string(piece));
      wanted.threads = threads;
      wanted.piece_bytes = static_cast<std::size_t>(piece);
      const TokenizeResult result = tokenize(tokenizer_, wanted);
      EXPECT_EQ(tokens_in(wanted.prefix), expected) << kind << ", pieces of " << piece;
      EXPECT_EQ(lengths_in(folder_, wanted.prefix.filename()), lengths);
      EXPECT_EQ(result.documents, static_cast<std::int64_t>(lengths.size()));
      EXPECT_EQ(result.tokens, static_cast<std::int64_t>(expected.size()));
      EXPECT_EQ(result.bytes, lines.size() + prose.size() + 7);
      EXPECT_EQ(result.empty, 1u);
    }
  }
}

TEST_F(Tokenize, TakesTheTextUnderTheKeyThatIsNamed) {
  TokenizeRequest wanted = request({folder_.write("a.jsonl", json_line("the end", "body") + "\n  \n")});
  wanted.key = "body";
  EXPECT_EQ(tokenize(tokenizer_, wanted).documents, 1);
}

TEST_F(Tokenize, WhatCannotBeReadIsNamedByItsPlace) {
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += json_line("a line");
  for (const int threads : {1, 4}) {
    TokenizeRequest wanted =
        request({folder_.write("a.jsonl", lines + "{\"text\": 5}\n" + lines + "nonsense\n")});
    wanted.threads = threads;
    wanted.piece_bytes = 100;
    says(refusal(wanted), "a.jsonl:51: has no text under 'text'; name the key");
  }
  says(refusal(request({folder_.write("b.jsonl", lines + "{\"text\": \n")})), "b.jsonl:51: byte ");
  TokenizeRequest broken = request({folder_.write("c.txt", std::string(200, 'x') + " y z\xFF.")});
  broken.piece_bytes = 50;
  says(refusal(broken), "c.txt: is not UTF-8 at byte 204; mend it, or have such bytes replaced");
  says(refusal(request({folder_.write("d.jsonl", "{\"text\": \"\xFF\"}\n")})), "d.jsonl:1: byte ");
  says(refusal(request({folder_ / "nowhere.txt"})), "nowhere.txt is not a file");
  TokenizeRequest nowhere = request({folder_.write("e.txt", "e")});
  nowhere.prefix = folder_ / "no/set";
  says(refusal(nowhere), "is not a folder");
}

TEST_F(Tokenize, ReplacesBrokenBytesWhereAskedTo) {
  const std::string broken = "a\xFF\xE4\xB8 b", mended = "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD b";
  TokenizeRequest wanted =
      request({folder_.write("a.txt", broken), folder_.write("a.jsonl", "{\"text\": \"" + broken + "\"}\n")});
  wanted.replace = true;
  EXPECT_EQ(tokenize(tokenizer_, wanted).replaced, 6u);
  Ids document(tokenizer_.prefix().begin(), tokenizer_.prefix().end()), twice;
  const Ids own = tokenizer_.encode(mended);
  document.insert(document.end(), own.begin(), own.end());
  document.push_back(*tokenizer_.end_of_text());
  for (int i = 0; i < 2; ++i) twice.insert(twice.end(), document.begin(), document.end());
  EXPECT_EQ(tokens_in(folder_ / "set"), twice);
}

TEST_F(Tokenize, OverwritesNothing) {
  folder_.write("set.idx", "mine");
  try {
    tokenize(tokenizer_, request({folder_.write("a.txt", "a")}));
    FAIL() << "it was overwritten";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("set.idx exists; remove it"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read_file(folder_ / "set.idx"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "set.bin"));
}

TEST(TokenSetWriter, TakesFourBytesWhereTwoAreTooFew) {
  const TempFolder folder;
  const Ids ids = {0, 65535, 65536, 128255};
  for (const TokenId vocab : {65536, 65537}) {
    const std::string prefix = folder / ("set" + std::to_string(vocab));
    TokenSetWriter writer(prefix, vocab);
    writer.append(std::span(ids).first(vocab == 65536 ? 2 : 4));
    writer.end_document();
    writer.commit();
    EXPECT_EQ(writer.token_bytes(), vocab == 65536 ? 2 : 4);
    EXPECT_EQ(tokens_in(prefix), Ids(ids.begin(), ids.begin() + writer.tokens()));
  }
}

}  // namespace
}  // namespace prun::test
