// Conversations of compressed files are those of the plain ones.
#include "chat_data.hpp"

#include <gtest/gtest.h>

#include <map>

#include "support/fake_options.hpp"
#include "support/packed_text.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

constexpr std::int64_t seq = 320;

// Tokens and targets of all samples of a file, or of those in a folder.
std::vector<std::int32_t> stream_of(const std::string& path) {
  FakeOptions options{{"path", path},         {"tokenizer", PRUN_TEST_FIXTURES "/chat/chatml"},
                      {"template", "chatml"}, {"date", ""},
                      {"reasoning", "learn"}, {"between", 703},
                      {"learn", "answers"},   {"pack", true},
                      {"too_long", "drop"}};
  chat::ChatData data(options.options());
  const std::int64_t samples = data.open(seq).samples;
  EXPECT_GT(samples, 1);
  std::vector<std::int32_t> stream(static_cast<std::size_t>(2 * samples * seq));
  for (std::int64_t i = 0; i < samples; ++i)
    data.read(i, stream.data() + 2 * i * seq, stream.data() + (2 * i + 1) * seq);
  return stream;
}

TEST(ChatData, CompressedFilesHoldTheSameConversations) {
  const std::string plain = PRUN_TEST_FIXTURES "/chat/chats.jsonl";
  const std::vector<std::int32_t> expected = stream_of(plain);
  for (const PackedText& way : packed_ways(read_file(plain))) {
    const TempFolder folder;
    const std::string file = folder.write("chats.jsonl" + way.ending, way.bytes);
    EXPECT_EQ(stream_of(file), expected) << way.ending;
    EXPECT_EQ(stream_of(folder.path()), expected) << way.ending;
  }
}

// A target is of the role whose token it is.
TEST(ChatData, TargetsAreOfTheRolesOfTheirTokens) {
  FakeOptions options{{"path", PRUN_TEST_FIXTURES "/chat/chats.jsonl"},
                      {"tokenizer", PRUN_TEST_FIXTURES "/chat/chatml"},
                      {"template", "chatml"},
                      {"date", ""},
                      {"reasoning", "learn"},
                      {"between", 703},
                      {"learn", "all"},
                      {"pack", true},
                      {"too_long", "drop"}};
  chat::ChatData data(options.options());
  const std::int64_t samples = data.open(seq).samples;
  std::map<std::uint8_t, int> counts;
  for (std::int64_t i = 0; i < samples; ++i) {
    std::vector<std::int32_t> tokens(seq), targets(seq);
    std::vector<std::uint8_t> roles(seq);
    data.read(i, tokens.data(), targets.data());
    data.roles(i, roles.data());
    for (std::size_t at = 0; at < seq; ++at) {
      if (targets[at] < 0) continue;
      ++counts[roles[at]];
      EXPECT_LT(roles[at], 5);
    }
  }
  EXPECT_GT(counts[static_cast<std::uint8_t>(chat::Speaker::user)], 0);
  EXPECT_GT(counts[static_cast<std::uint8_t>(chat::Speaker::assistant)], 0);
}

}  // namespace
}  // namespace prun::test
