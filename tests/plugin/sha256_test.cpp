// SHA-256 against the vectors of FIPS 180-4 and its companion examples.
#include "base/sha256.hpp"

#include <fcntl.h>

#include "base/durable_file.hpp"
#include "plugin_fixtures.hpp"

namespace prun {
namespace {

constexpr const char* million_digest = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, AgreesWithPublishedVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      sha256_hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
                 "lmnopqrsmnopqrstnopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), million_digest);
}

TEST(Sha256, DoesNotDependOnHowTheTextIsCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i % 26);
  const std::string whole = sha256_hex(text);
  for (std::size_t piece = 1; piece <= 130; ++piece) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece)
      hash.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.hex(), whole) << "in pieces of " << piece;
  }
}

TEST(Sha256, IsTheSameWithAndWithoutTheProcessorsHelp) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    Sha256 plain(false);
    plain.update(text);
    ASSERT_EQ(plain.hex(), sha256_hex(text)) << text.size();
    text += static_cast<char>(i * 37 + i / 7);
  }
}

TEST(Sha256, ReadsAFileWhole) {
  const test::TempFolder folder;
  test::write_file(folder.path() / "a", std::string(1000000, 'a'));
  const FileDescriptor file(::open((folder.path() / "a").c_str(), O_RDONLY));
  ASSERT_TRUE(file.is_open());
  EXPECT_EQ(sha256_of_file(file.get(), "a"), million_digest);
  EXPECT_EQ(sha256_of_file(file.get(), "a"), million_digest);  // the position does not matter
}

TEST(Sha256, SaysWhichFileCannotBeRead) {
  EXPECT_TRUE(test::holds(test::error_of([] { sha256_of_file(-1, "x.so"); }), "cannot read 'x.so'"));
}

}  // namespace
}  // namespace prun
