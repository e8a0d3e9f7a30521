// The text corpus: which files, in which order, and what samples hold.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "plugins/data/text/text_data.hpp"
#include "tests/support/fake_options.hpp"
#include "tests/support/temp_folder.hpp"
#include "token_files.hpp"

namespace prun::text {
namespace {

using test::message_of;
using test::TempFolder;
using Names = std::vector<std::string>;

CorpusRules rules_of(const std::string& path) { return {path, {}, {".git", "build", "runs"}, 256u << 20}; }

void contains(const std::string& message, const std::string& fragment) {
  EXPECT_NE(message.find(fragment), std::string::npos) << message;
}

Names names_of(const TempFolder& folder, const CorpusRules& rules) {
  Names names;
  for (const auto& file : find_files(rules)) names.push_back(file.lexically_relative(folder.path()).string());
  return names;
}

TEST(TextCorpus, FilesInByteOrderOfTheirPaths) {
  const TempFolder folder;
  for (const char* name : {"b.txt", "a/z.txt", "a.txt", "B.txt", "a/b/c", "ä.txt", "a-1.txt"})
    folder.write(name, "x");
  const Names expected{"B.txt", "a-1.txt", "a.txt", "a/b/c", "a/z.txt", "b.txt", "ä.txt"};
  EXPECT_EQ(names_of(folder, rules_of(folder.path())), expected);
  EXPECT_EQ(names_of(folder, rules_of(folder.path())), expected);
}

TEST(TextCorpus, LeavesOutWhatIsExcludedHiddenOrBinary) {
  const TempFolder folder;
  for (const char* name :
       {".git/a", "build/a", "x/runs/a", ".cache/a", "x/.venv/y/a", "keep", "x/keep", ".hidden"})
    folder.write(name, "text");
  folder.write("nul_late", std::string(4096, 'a') + '\0');
  folder.write("nul_early", std::string(4095, 'a') + '\0');
  folder.write("empty", "");
  EXPECT_EQ(names_of(folder, rules_of(folder.path())),
            (Names{".hidden", "empty", "keep", "nul_late", "x/keep"}));
}

TEST(TextCorpus, ExcludesFilesByName) {
  const TempFolder folder;
  folder.write("a.txt", "a"), folder.write("b.txt", "b"), folder.write("c/a.txt", "c");
  CorpusRules rules = rules_of(folder.path());
  rules.exclude = {"a.txt"};
  EXPECT_EQ(names_of(folder, rules), Names{"b.txt"});
}

TEST(TextCorpus, ExtensionsWithAndWithoutDot) {
  const TempFolder folder;
  for (const char* name : {"a.txt", "b.md", "c.cpp", "d", "e.txt.bak", "txt"}) folder.write(name, "x");
  CorpusRules rules = rules_of(folder.path());
  rules.extensions = {"txt", ".md"};
  EXPECT_EQ(names_of(folder, rules), (Names{"a.txt", "b.md"}));
}

TEST(TextCorpus, LinksToFilesCountLinksToFoldersDoNot) {
  const TempFolder folder, elsewhere;
  folder.write("a.txt", "a");
  const std::string file = elsewhere.write("far.txt", "far");
  std::filesystem::create_symlink(file, folder / "link.txt");
  std::filesystem::create_symlink(elsewhere.path(), folder / "linked");
  std::filesystem::create_symlink(folder.path(), folder / "loop");
  std::filesystem::create_symlink("nowhere", folder / "broken");
  std::filesystem::create_symlink("self", folder / "self");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(names_of(folder, rules_of(folder.path())), (Names{"a.txt", "link.txt"}));
}

TEST(TextCorpus, OneNewlineBetweenFiles) {
  const TempFolder folder;
  folder.write("1", "one"), folder.write("2", "two\n"), folder.write("3", ""), folder.write("4", "four");
  EXPECT_EQ(load_corpus(rules_of(folder.path())), "one\ntwo\n\n\nfour");
  EXPECT_EQ(load_corpus(rules_of(folder / "2")), "two\n");
}

TEST(TextCorpus, TheBoundCountsEveryByte) {
  const TempFolder folder;
  folder.write("1", "one"), folder.write("2", "two");
  CorpusRules rules = rules_of(folder.path());
  rules.max_bytes = 7;
  EXPECT_EQ(load_corpus(rules), "one\ntwo");
  for (const std::uint64_t bytes : {6u, 4u, 3u, 1u}) {
    rules.max_bytes = bytes;
    contains(message_of([&] { load_corpus(rules); }), "holds more than max_bytes = " + std::to_string(bytes));
  }
}

TEST(TextCorpus, WhatIsMissingOrEmpty) {
  const TempFolder folder;
  contains(message_of([&] { load_corpus(rules_of(folder / "nothing")); }), "does not exist");
  contains(message_of([&] { load_corpus(rules_of("")); }), "does not exist");
  contains(message_of([&] { load_corpus(rules_of("/dev/null")); }), "neither a file nor a folder");
  contains(message_of([&] { load_corpus(rules_of(folder.path())); }), "holds no text file");
}

class TextSamples : public testing::Test {
 protected:
  TextData open(const std::string& path) {
    const std::vector<std::string> exclude{"build"};
    test::FakeOptions options{
        {"path", path}, {"extensions", Names{}}, {"exclude", exclude}, {"max_bytes", 1000}};
    return TextData(options.options());
  }
  TempFolder folder_;
};

TEST_F(TextSamples, TargetsAreTheNextBytes) {
  const std::string text = "To be, or not to be\xff\x80\x00!" + std::string(1, '\0') + "end";
  TextData data = open(folder_.write("a.txt", text));
  for (const std::int64_t seq : {1, 2, 5, 22}) {
    const DataInfo info = data.open(seq);
    EXPECT_EQ(info.tokens, static_cast<std::int64_t>(text.size()));
    EXPECT_EQ(info.samples, (info.tokens - 1) / seq);
    EXPECT_EQ(info.vocab, 256);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq)), targets(tokens);
    for (std::int64_t i = 0; i < info.samples; ++i) {
      data.read(i, tokens.data(), targets.data());
      for (std::int64_t t = 0; t < seq; ++t) {
        const auto at = static_cast<std::size_t>(i * seq + t);
        EXPECT_EQ(tokens[static_cast<std::size_t>(t)], static_cast<unsigned char>(text[at]));
        EXPECT_EQ(targets[static_cast<std::size_t>(t)], static_cast<unsigned char>(text[at + 1]));
      }
    }
  }
}

TEST_F(TextSamples, TheSmallestCorpusHasOneByteMoreThanASample) {
  const std::string path = folder_.write("a.txt", "12345678");
  EXPECT_EQ(open(path).open(7).samples, 1);
  contains(message_of([&] { open(path).open(8); }), "8 bytes are too few for one sample of 8 tokens");
  contains(message_of([&] { open(folder_.write("b.txt", "")).open(1); }), "0 bytes are too few");
}

TEST_F(TextSamples, ASampleThatIsNotThereIsABrokenPromise) {
  TextData data = open(folder_.write("a.txt", "abc"));
  EXPECT_EQ(data.open(1).samples, 2);
  std::int32_t token, target;
  EXPECT_THROW(data.read(2, &token, &target), Error);
  EXPECT_THROW(data.read(-1, &token, &target), Error);
}

}  // namespace
}  // namespace prun::text
