#include "launch/token.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/durable_file.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr std::size_t block_size = 64;
constexpr std::size_t shortest_token = 32;
constexpr std::size_t longest_token = 4096;
constexpr const char* recipe = "export PRUN_TOKEN=$(head -c32 /dev/urandom | xxd -p -c64)";

int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

Digest from_hex(const std::string& hex) {
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return digest;
}

Digest digest_of(std::span<const std::byte> first, std::span<const std::byte> second) {
  Sha256 hash;
  hash.update(first);
  hash.update(second);
  return from_hex(hash.hex());
}

std::string read_token_file(const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw_error(ErrorCode::bad_input, "PRUN_TOKEN_FILE ", in_quotes(path), ": ", what);
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open()) refuse(std::strerror(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) refuse("it is not a file");
  if (info.st_uid != ::geteuid()) refuse("it belongs to somebody else");
  if ((info.st_mode & 077) != 0) refuse("others than you may read it; chmod 600 it and make a new token");
  std::string text(longest_token, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) refuse(std::strerror(errno));
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace

Digest hmac_sha256(std::string_view key, std::string_view message) {
  std::array<std::byte, block_size> inner{}, outer{};
  if (key.size() > block_size) {
    const Digest hashed = from_hex(sha256_hex(key));
    std::copy(hashed.begin(), hashed.end(), inner.begin());
  } else {
    key.copy(reinterpret_cast<char*>(inner.data()), block_size);
  }
  outer = inner;
  for (std::byte& b : inner) b ^= std::byte{0x36};
  for (std::byte& b : outer) b ^= std::byte{0x5c};
  return digest_of(outer, digest_of(inner, std::as_bytes(std::span(message))));
}

bool same_digest(const Digest& a, const Digest& b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

Digest random_digest() {
  Digest bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw_error(ErrorCode::internal, "the system gives no random bytes: ", std::strerror(errno));
  return bytes;
}

std::string token_from_environment(const Environment& environment) {
  std::optional<std::string> token = environment("PRUN_TOKEN");
  if (const auto path = environment("PRUN_TOKEN_FILE")) token = read_token_file(*path);
  if (!token)
    throw_error(ErrorCode::bad_input,
                "cannot connect ranks without a common secret; give all of them the same PRUN_TOKEN, for "
                "example by running '",
                recipe, "' before you start them, or name a file of mode 600 in PRUN_TOKEN_FILE");
  const std::string secret(trim(*token));
  if (secret.size() < shortest_token)
    throw_error(ErrorCode::bad_input, "the token of the run has ", secret.size(),
                " characters and needs at least ", shortest_token, "; make one with '", recipe, "'");
  return secret;
}

}  // namespace prun
