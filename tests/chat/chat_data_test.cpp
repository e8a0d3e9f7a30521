// Conversations of compressed files are those of the plain ones.
#include "chat_data.hpp"

#include <gtest/gtest.h>

#include "support/fake_options.hpp"
#include "support/packed_text.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

constexpr std::int64_t seq = 320;

// Tokens and targets of all samples of a file, or of those in a folder.
std::vector<std::int32_t> stream_of(const std::string& path) {
  FakeOptions options{{"path", path},         {"tokenizer", PRUN_TEST_FIXTURES "/chat/chatml"},
                      {"template", "chatml"}, {"between", 703},
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

}  // namespace
}  // namespace prun::test
