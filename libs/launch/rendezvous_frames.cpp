#include "launch/rendezvous_frames.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstring>
#include <type_traits>

#include "base/durable_file.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- token

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

namespace {

// ------------------------------------------------------------------- rendezvous frames

constexpr std::string_view magic = "prun-rv2";
constexpr int highest_code = static_cast<int>(ErrorCode::internal);

// Numbers are put by their 32 or 64 lowest bits, as Reader gives them back.
template <class Number>
requires std::is_integral_v<Number> || std::is_enum_v<Number>
void put(std::string& out, Number number) {
  const auto bits = static_cast<std::uint32_t>(number);
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(bits >> shift & 0xff);
}

template <std::integral Number>
void put_long(std::string& out, Number number) {
  const auto bits = static_cast<std::uint64_t>(number);
  put(out, bits);
  put(out, bits >> 32);
}

void put_text(std::string& out, std::string_view text) {
  put(out, text.size());
  out += text;
}

void put(std::string& out, const Digest& digest) {
  out.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Reads from the front; once something is missing, it stays false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) good_ = false;
    if (!good_) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <class Number = std::uint32_t>
  Number number() {
    const std::string_view four = bytes(4);
    std::uint32_t value = 0;
    for (std::size_t i = four.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(four[i]);
    return static_cast<Number>(value);
  }
  template <std::integral Number = std::uint64_t>
  Number long_number() {
    const std::uint64_t low = number();
    return static_cast<Number>(low | std::uint64_t{number()} << 32);
  }
  // Reads a text, made fit for a terminal; it is empty and bad if it is longer than allowed.
  std::string text(std::size_t longest) {
    const std::uint32_t size = number();
    if (size > longest) good_ = false;
    return printable(bytes(size), longest);
  }
  Digest digest() {
    Digest value{};
    const std::string_view text = bytes(value.size());
    if (good_) std::memcpy(value.data(), text.data(), text.size());
    return value;
  }
  std::size_t left() const { return rest_.size(); }
  bool good() const { return good_; }
  bool finished() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

Digest hello_proof(std::string_view token, const Digest& server_random, const Hello& hello) {
  std::string message = "prun rank";
  put(message, server_random);
  put(message, hello.rank);
  put(message, hello.world);
  put(message, hello.client_random);
  return hmac_sha256(token, message);
}

Digest verdict_proof(std::string_view token, const Digest& server_random, const Digest& client_random,
                     std::int32_t rank) {
  std::string message = "prun server";
  put(message, server_random);
  put(message, client_random);
  put(message, rank);
  return hmac_sha256(token, message);
}

bool known(FrameType type) { return type >= FrameType::gather && type <= FrameType::heard; }

}  // namespace

std::string make_greeting(const Digest& server_random) {
  std::string out(magic);
  put(out, server_random);
  return out;
}

std::optional<Digest> parse_greeting(std::string_view bytes) {
  Reader in(bytes);
  if (in.bytes(magic.size()) != magic) return {};
  const Digest random = in.digest();
  if (!in.finished()) return {};
  return random;
}

std::string make_hello(std::string_view token, const Digest& server_random, std::int32_t rank,
                       std::int32_t world, const Digest& client_random) {
  const Hello hello{rank, world, client_random, {}};
  std::string out(magic);
  put(out, rank);
  put(out, world);
  put(out, client_random);
  put(out, hello_proof(token, server_random, hello));
  return out;
}

std::optional<Hello> parse_hello(std::string_view bytes) {
  Reader in(bytes);
  if (in.bytes(magic.size()) != magic) return {};
  Hello hello;
  hello.rank = in.number<std::int32_t>();
  hello.world = in.number<std::int32_t>();
  hello.client_random = in.digest();
  hello.proof = in.digest();
  if (!in.finished()) return {};
  return hello;
}

bool proves_token(const Hello& hello, std::string_view token, const Digest& server_random) {
  return same_digest(hello.proof, hello_proof(token, server_random, hello));
}

std::string make_verdict(Admission verdict, std::string_view token, const Digest& server_random,
                         const Hello& hello) {
  std::string out(magic);
  put(out, verdict);
  const bool welcome = verdict == Admission::welcome;
  put(out, welcome ? verdict_proof(token, server_random, hello.client_random, hello.rank) : Digest{});
  return out;
}

std::optional<Admission> check_verdict(std::string_view bytes, std::string_view token,
                                       const Digest& server_random, const Digest& client_random,
                                       std::int32_t rank) {
  Reader in(bytes);
  if (in.bytes(magic.size()) != magic) return {};
  const std::uint32_t number = in.number();
  const Digest proof = in.digest();
  if (!in.finished() || number > static_cast<std::uint32_t>(Admission::rank_taken)) return {};
  const auto verdict = static_cast<Admission>(number);
  if (verdict == Admission::welcome &&
      !same_digest(proof, verdict_proof(token, server_random, client_random, rank)))
    return {};
  return verdict;
}

// ------------------------------------------------------------------- frames

std::string make_frame(FrameType type, std::string_view body) {
  std::string out;
  out.reserve(frame_header + body.size());
  put(out, body.size());
  put(out, type);
  out += body;
  return out;
}

std::optional<Frame> FrameReader::next() {
  Reader in(std::string_view(pending_).substr(used_));
  const std::uint32_t length = in.number();
  const auto type = in.number<FrameType>();
  if (!in.good()) return {};
  if (!known(type) || length > limit_)
    throw_error(ErrorCode::comm_failed,
                "cannot read a frame of the rendezvous: the other end sent other bytes; check that no other "
                "program uses this port");
  if (in.left() < length) return {};
  Frame frame{type, std::string(in.bytes(length))};
  used_ += frame_header + length;
  if (used_ == pending_.size()) {
    pending_.clear();
    used_ = 0;
  } else if (used_ > pending_.size() / 2) {
    pending_.erase(0, used_);
    used_ = 0;
  }
  return frame;
}

std::string encode(const GatherRequest& request) {
  std::string out;
  put(out, request.channel.size());
  out += request.channel;
  put(out, request.limit_ms);
  put(out, request.members.size());
  for (const std::int32_t member : request.members) put(out, member);
  out += request.bytes;
  return out;
}

std::optional<GatherRequest> decode_gather(std::string_view body) {
  Reader in(body);
  GatherRequest request;
  const std::uint32_t channel = in.number();
  if (channel > channel_limit) return {};
  request.channel = in.bytes(channel);
  request.limit_ms = in.number();
  const std::uint32_t members = in.number();
  if (!in.good() || members == 0 || members > world_limit || members > in.left() / 4) return {};
  request.members.resize(members);
  for (std::int32_t& member : request.members) member = in.number<std::int32_t>();
  request.bytes = in.bytes(in.left());
  if (!in.finished() || request.bytes.size() > contribution_limit) return {};
  return request;
}

std::string encode_result(std::span<const std::string> parts) {
  std::string out;
  put(out, parts.size());
  for (const std::string& part : parts) {
    put(out, part.size());
    out += part;
  }
  return out;
}

std::optional<std::vector<std::string>> decode_result(std::string_view body) {
  Reader in(body);
  const std::uint32_t count = in.number();
  if (!in.good() || count > in.left() / 4) return {};
  std::vector<std::string> parts(count);
  for (std::string& part : parts) part = in.bytes(in.number());
  if (!in.finished()) return {};
  return parts;
}

std::string encode(const FlightReport& report) {
  std::string out;
  put(out, report.limit_ms);
  put(out, std::uint32_t{report.stops});
  put_text(out, report.doing);
  put_long(out, report.saved_ns);
  put_long(out, report.stands_ns);
  put(out, report.communicators.size());
  for (const FlightCommunicator& communicator : report.communicators) {
    put_text(out, communicator.name);
    put_text(out, communicator.operation);
    put_long(out, communicator.id);
    put_long(out, communicator.entered);
    put_long(out, communicator.left);
    put(out, std::uint32_t{communicator.waiting});
    put_long(out, communicator.entered_ns);
    put(out, communicator.inside() ? communicator.members.size() : 0);
    if (!communicator.inside()) continue;
    for (const int member : communicator.members) put(out, member);
  }
  return out;
}

std::optional<FlightReport> decode_flight_report(std::string_view body) {
  Reader in(body);
  FlightReport report;
  report.limit_ms = in.number();
  report.stops = in.number() == 1;
  report.doing = in.text(report_limit);
  report.saved_ns = in.long_number<std::int64_t>();
  report.stands_ns = in.long_number<std::int64_t>();
  const std::uint32_t count = in.number();
  if (!in.good() || count > flight_communicators) return {};
  for (std::uint32_t i = 0; i < count; ++i) {
    FlightCommunicator& communicator = report.communicators.emplace_back();
    communicator.name = in.text(4 * flight_text);
    communicator.operation = in.text(4 * flight_text);
    communicator.id = in.long_number();
    communicator.entered = in.long_number();
    communicator.left = in.long_number();
    communicator.waiting = in.number() == 1;
    communicator.entered_ns = in.long_number<std::int64_t>();
    const std::uint32_t members = in.number();
    if (!in.good() || members > flight_ranks || communicator.entered_ns < 0) return {};
    for (std::uint32_t m = 0; m < members; ++m) {
      const std::uint32_t member = in.number();
      if (member >= flight_ranks) return {};
      communicator.members.push_back(static_cast<int>(member));
    }
  }
  if (!in.finished()) return {};
  return report;
}

std::string encode(const FailureText& failure) {
  std::string out;
  put(out, failure.code);
  out += std::string_view(failure.text).substr(0, report_limit);
  return out;
}

std::optional<FailureText> decode_failure(std::string_view body) {
  Reader in(body);
  const std::uint32_t code = in.number();
  if (!in.good() || code == 0 || code > static_cast<std::uint32_t>(highest_code) || in.left() > report_limit)
    return {};
  return FailureText{static_cast<ErrorCode>(code), std::string(in.bytes(in.left()))};
}

}  // namespace prun
