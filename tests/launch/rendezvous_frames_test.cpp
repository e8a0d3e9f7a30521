// The bytes of the rendezvous: proofs of the token, frames, and what is refused.
#include "launch/rendezvous_frames.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <random>

#include "support/temp_folder.hpp"

namespace prun::rendezvous_frames_test {
namespace {

std::string hex(const Digest& digest) {
  std::string out;
  for (const std::byte b : digest)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[std::to_integer<int>(b) >> shift & 15];
  return out;
}

// RFC 4231, cases 1, 2, 3 and 6.
TEST(Hmac, AgreesWithTheStandard) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(
      hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hello, ProvesTheTokenOnce) {
  const Digest server = random_digest(), client = random_digest();
  const auto hello = parse_hello(make_hello("secret", server, 3, 8, client));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 3);
  EXPECT_EQ(hello->world, 8);
  EXPECT_TRUE(proves_token(*hello, "secret", server));
  EXPECT_FALSE(proves_token(*hello, "Secret", server));
  EXPECT_FALSE(proves_token(*hello, "secret", random_digest()));  // a replay
  Hello changed = *hello;
  changed.rank = 4;
  EXPECT_FALSE(proves_token(changed, "secret", server));
}

TEST(Hello, TheServerProvesItToo) {
  const Digest server = random_digest(), client = random_digest();
  const Hello hello{3, 8, client, {}};
  const std::string welcome = make_verdict(Admission::welcome, "secret", server, hello);
  EXPECT_EQ(check_verdict(welcome, "secret", server, client, 3), Admission::welcome);
  EXPECT_FALSE(check_verdict(welcome, "other", server, client, 3));
  EXPECT_FALSE(check_verdict(welcome, "secret", server, random_digest(), 3));
  const std::string refusal = make_verdict(Admission::rank_taken, "secret", server, hello);
  EXPECT_EQ(check_verdict(refusal, "secret", server, client, 3), Admission::rank_taken);
}

TEST(Frames, ComeOutWhole) {
  const std::string stream = make_frame(FrameType::gather, "abc") + make_frame(FrameType::goodbye, "") +
                             make_frame(FrameType::report, std::string(5000, 'x'));
  FrameReader reader(request_limit);
  std::vector<Frame> frames;
  for (const char byte : stream) {
    reader.add(std::string_view(&byte, 1));
    while (auto frame = reader.next()) frames.push_back(*frame);
  }
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].body, "abc");
  EXPECT_EQ(frames[1].type, FrameType::goodbye);
  EXPECT_EQ(frames[2].body.size(), 5000u);
}

TEST(Frames, ALengthAboveTheLimitIsRefusedAtOnce) {
  FrameReader reader(1000);
  reader.add(std::string("\xff\xff\xff\xff\x01\0\0\0", 8));
  EXPECT_THROW(reader.next(), Error);
}

TEST(Frames, BodiesComeBack) {
  const GatherRequest request{"channel", {2, 0, 5}, 1234, std::string("a\0b", 3)};
  const auto back = decode_gather(encode(request));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->channel, request.channel);
  EXPECT_EQ(back->members, request.members);
  EXPECT_EQ(back->limit_ms, 1234u);
  EXPECT_EQ(back->bytes, request.bytes);
  const std::vector<std::string> parts = {"", "x", std::string(100, '\0')};
  EXPECT_EQ(decode_result(encode_result(parts)), parts);
  const auto failure = decode_failure(encode(FailureText{ErrorCode::storage, "why"}));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::storage);
  EXPECT_EQ(failure->text, "why");
}

// Damage and noise: nothing may crash, hang or take more memory than the bytes justify.
TEST(Frames, AnyBytesAreHarmless) {
  std::mt19937 random(11);
  const std::string good[] = {encode(GatherRequest{"channel", {2, 0, 5}, 1234, "bytes"}),
                              encode_result(std::vector<std::string>{"one", "two"}),
                              encode(FailureText{ErrorCode::storage, "why"})};
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bytes = good[random() % 3];
    if (trial % 3 == 0) bytes.assign(random() % 200, '\0');
    for (unsigned i = random() % 4 + (trial % 3 == 0 ? 200 : 0); i-- > 0 && !bytes.empty();)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1) + (trial % 2 ? 0 : bytes.size() / 2));
    if (const auto request = decode_gather(bytes)) {
      EXPECT_LE(request->members.size() * 4 + request->bytes.size(), bytes.size());
    }
    if (const auto parts = decode_result(bytes)) {
      EXPECT_LE(parts->size() * 4, bytes.size());
    }
    (void)decode_failure(bytes);
    (void)parse_hello(bytes);
    (void)parse_greeting(bytes);
    (void)check_verdict(bytes, "secret", {}, {}, 0);
    FrameReader reader(1000);
    reader.add(bytes);
    try {
      while (reader.next()) continue;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::comm_failed);
    }
  }
}

std::string token_error(const std::map<std::string, std::string>& variables) {
  try {
    return "token " + token_from_environment([&](const std::string& name) -> std::optional<std::string> {
             const auto found = variables.find(name);
             if (found == variables.end()) return {};
             return found->second;
           });
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Token, ComesFromTheEnvironmentOrAPrivateFile) {
  const std::string secret(64, 'a');
  EXPECT_EQ(token_error({{"PRUN_TOKEN", secret + "\n"}}), "token " + secret);
  EXPECT_NE(token_error({}).find("export PRUN_TOKEN=$(head -c32 /dev/urandom | xxd -p -c64)"),
            std::string::npos);
  EXPECT_NE(token_error({{"PRUN_TOKEN", "1234"}}).find("has 4 characters"), std::string::npos);

  const test::TempFolder folder;
  const std::string path = folder / "token";
  std::ofstream(path) << std::string(64, 'b') << "\n";
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_NE(token_error({{"PRUN_TOKEN_FILE", path}}).find("others than you may read it"), std::string::npos);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(token_error({{"PRUN_TOKEN_FILE", path}, {"PRUN_TOKEN", secret}}),
            "token " + std::string(64, 'b'));
  EXPECT_NE(token_error({{"PRUN_TOKEN_FILE", path + "x"}}).find("No such file"), std::string::npos);
  EXPECT_NE(token_error({{"PRUN_TOKEN_FILE", folder.path()}}).find("it is not a file"), std::string::npos);
}

}  // namespace
}  // namespace prun::rendezvous_frames_test
