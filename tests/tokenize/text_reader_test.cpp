// Compressed texts are read to the bytes of the text, and whatever is wrong with them is a sentence.
#include "lines/text_reader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "prun/error.hpp"
#include "support/packed_text.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

// Of letters that do not repeat for long, so that it takes several buffers when it is compressed.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (std::uint64_t state = 1; text.size() < bytes; text += state % 71 == 0 ? '\n' : 'a')
    for (int i = 0; i < 8; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += static_cast<char>('0' + (state >> 58));
    }
  return text;
}

std::string text_in(const std::string& file, std::size_t piece = 4096) {
  TextReader reader(file);
  std::string text, room(piece, '\0');
  while (const std::size_t count = reader.read(room)) text += room.substr(0, count);
  EXPECT_EQ(reader.read(room), 0u);
  return text;
}

std::string trouble_of(const std::string& file) {
  try {
    text_in(file);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "(no error)";
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TextReader, UnpacksToTheText) {
  const TempFolder folder;
  for (const std::string& text : {std::string(), std::string("a"), long_text(3 << 20)})
    for (const PackedText& way : packed_ways(text)) {
      const std::string file = folder.write("t.jsonl" + way.ending, way.bytes);
      EXPECT_TRUE(text_in(file) == text) << way.ending << " of " << text.size();
      EXPECT_TRUE(text_in(file, text.size() < 100 ? 1 : 99991) == text) << way.ending;
    }
  EXPECT_EQ(text_in(folder.write("plain.jsonl", "as it is")), "as it is");
}

// Nothing that repeats is large once compressed: a buffer of it may fill the room many times.
TEST(TextReader, UnpacksWhatIsMuchLargerThanItsFile) {
  const TempFolder folder;
  const std::string text(20 << 20, 'x');
  for (const PackedText& way : packed_ways(text))
    EXPECT_TRUE(text_in(folder.write("x" + way.ending, way.bytes)) == text) << way.ending;
}

TEST(TextReader, StreamsBehindEachOtherAreOneText) {
  const TempFolder folder;
  const std::string first = long_text(1 << 20);
  const auto ways = packed_ways(first), seconds = packed_ways("the rest"), none = packed_ways("");
  for (std::size_t i = 0; i < ways.size(); ++i)
    EXPECT_TRUE(text_in(folder.write("t" + ways[i].ending,
                                     ways[i].bytes + none[i].bytes + seconds[i].bytes)) == first + "the rest")
        << ways[i].ending;
}

TEST(TextReader, LinesAreThoseOfGetline) {
  const TempFolder folder;
  for (const std::string& text : {std::string(), std::string("\n"), std::string("a"),
                                  std::string("a\n\n b\r\n"), long_text(300000), long_text(300000) + "\n"}) {
    std::istringstream as_it_should_be(text);
    LineReader lines(folder.write("t.jsonl", text));
    std::string line, expected;
    while (std::getline(as_it_should_be, expected)) {
      ASSERT_TRUE(lines.next(line));
      ASSERT_EQ(line, expected);
    }
    EXPECT_FALSE(lines.next(line));
    EXPECT_FALSE(lines.next(line));
  }
}

TEST(TextReader, WhatIsCutShortIsSaidWithItsPlace) {
  const TempFolder folder;
  const std::string text = long_text(1 << 20);
  for (const PackedText& way : packed_ways(text))
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{3}, std::size_t{300000}, way.bytes.size() - 1}) {
      const std::string file = folder.write("cut.jsonl" + way.ending, way.bytes.substr(0, bytes));
      expect_has(trouble_of(file), file + ": is cut short at byte " + std::to_string(bytes) +
                                       " of the compressed file; copy it here again, or make it again");
    }
}

TEST(TextReader, WhatIsDamagedIsSaidWithItsPlace) {
  const TempFolder folder;
  const std::string text = long_text(1 << 20);
  for (const PackedText& way : packed_ways(text))
    for (const std::size_t at : {std::size_t{0}, std::size_t{400000}, way.bytes.size() - 3}) {
      std::string bytes = way.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
      const std::string file = folder.write("bad.jsonl" + way.ending, bytes);
      expect_has(trouble_of(file), file + ": is damaged or no ");
      expect_has(trouble_of(folder.write("bad" + way.ending, way.bytes + "more")), " of the compressed file");
      expect_has(trouble_of(folder.write("plain" + way.ending, text)), ": is damaged or no ");
    }
}

#if PRUN_TEST_ZSTD
// The memory that a file asks for is bounded, too.
TEST(TextReader, AWindowThatIsTooLargeIsRefused) {
  const TempFolder folder;
  const std::string text = long_text(1 << 20);
  EXPECT_TRUE(text_in(folder.write("27.zst", zstd_of(text, 27))) == text);
  expect_has(trouble_of(folder.write("28.zst", zstd_of(text, 28))), "a window of more than 128 MiB");
}
#endif

#if !PRUN_TEST_GZIP
TEST(TextReader, SaysThatGzipIsLeftOut) {
  const TempFolder folder;
  expect_has(trouble_of(folder.write("a.gz", "")),
             "built without zlib, which reads gzip; unpack it with gunzip");
}
#endif

#if !PRUN_TEST_ZSTD
TEST(TextReader, SaysThatZstdIsLeftOut) {
  const TempFolder folder;
  expect_has(trouble_of(folder.write("a.zst", "")),
             "built without libzstd, which reads zstd; unpack it with unzstd");
}
#endif

TEST(TextReader, TheNameOfTheTextIsWithoutItsCompression) {
  EXPECT_EQ(plain_name("a/b.jsonl.gz"), "a/b.jsonl");
  EXPECT_EQ(plain_name("b.jsonl.zst"), "b.jsonl");
  EXPECT_EQ(plain_name("a.gz/b.jsonl"), "a.gz/b.jsonl");
  EXPECT_EQ(plain_name(".gz"), ".gz");
}

}  // namespace
}  // namespace prun::test
