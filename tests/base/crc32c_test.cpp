// CRC-32C: the values of RFC 3720, the processor against the tables, and lines that show a change.
#include "base/crc32c.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace prun::crc32c_test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, HasTheValuesOfTheStandard) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c_text(0x8a9136), "008a9136");
}

TEST(Crc32c, TheTablesSayTheSameAsTheProcessor) {
  std::mt19937 random(7);
  std::string text(300, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (std::size_t from = 0; from < 9; ++from)
    for (std::size_t to = from; to <= text.size(); to += 7) {
      const auto part = bytes_of(text).subspan(from, to - from);
      ASSERT_EQ(crc32c(part), crc32c_in_software(part)) << from << " " << to;
    }
}

TEST(Crc32c, GoesOnFromWhatCameBefore) {
  const std::string text = "a text in two pieces";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t first = crc32c(bytes_of(text).first(cut));
    EXPECT_EQ(crc32c(bytes_of(text).subspan(cut), first), crc32c(bytes_of(text)));
    EXPECT_EQ(crc32c_in_software(bytes_of(text).subspan(cut), first), crc32c(bytes_of(text)));
  }
}

TEST(SealedLine, ShowsEveryChangeOfAByte) {
  const std::string line = sealed_line("step-00000010");
  EXPECT_EQ(unsealed(line), "step-00000010");
  EXPECT_EQ(unsealed(sealed_line("")), "");
  EXPECT_EQ(unsealed(sealed_line("a crc32c b")), "a crc32c b");
  for (std::size_t at = 0; at < line.size(); ++at)
    for (int change = 1; change < 256; ++change) {
      std::string other = line;
      other[at] = static_cast<char>(other[at] ^ change);
      ASSERT_EQ(unsealed(other), std::nullopt) << other;
    }
  for (std::size_t size = 0; size < line.size(); ++size)
    EXPECT_EQ(unsealed(line.substr(0, size)), std::nullopt);
  EXPECT_EQ(unsealed(line + "\n"), std::nullopt);
  EXPECT_EQ(unsealed("step-00000010\n"), std::nullopt);
}

}  // namespace
}  // namespace prun::crc32c_test
