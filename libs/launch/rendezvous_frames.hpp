// Defines the bytes between a rank and the rendezvous. All numbers are little-endian.
//
// Over TCP a connection begins with a proof of the shared token, in three messages of fixed size:
//   greeting  server: magic, 32 random bytes
//   hello     rank:   magic, rank, world, 32 random bytes, HMAC of all that and the greeting
//   verdict   server: magic, Admission, HMAC of both randoms, rank and Admission (zeros when it refuses)
// Before a right hello the server looks at nothing else. Ranks that prun starts inherit a connected socket
// and need no proof. Then come frames: u32 length of the body, u32 type, the body.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/flight.hpp"
#include "launch/identity.hpp"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- token
// Handles the secret that the ranks of a run share, and proofs of knowing it (HMAC-SHA256, RFC 2104).

using Digest = std::array<std::byte, 32>;

Digest hmac_sha256(std::string_view key, std::string_view message);
// Compares in the same time wherever the digests differ.
bool same_digest(const Digest& a, const Digest& b);
// Takes random bytes from the system's generator.
Digest random_digest();

// Reads the token from PRUN_TOKEN_FILE (only its owner may read it) or PRUN_TOKEN. Throws bad_input, with a
// line that makes a token, when neither is there or it is too short to be a secret.
std::string token_from_environment(const Environment& environment);

// ------------------------------------------------------------------- rendezvous frames

inline constexpr std::size_t greeting_size = 8 + 32;
inline constexpr std::size_t hello_size = 8 + 4 + 4 + 32 + 32;
inline constexpr std::size_t verdict_size = 8 + 4 + 32;

enum class Admission : std::uint32_t { welcome = 0, wrong_token, wrong_world, rank_taken };

std::string make_greeting(const Digest& server_random);
std::optional<Digest> parse_greeting(std::string_view bytes);

struct Hello {
  std::int32_t rank = 0, world = 0;
  Digest client_random{}, proof{};
};
std::string make_hello(std::string_view token, const Digest& server_random, std::int32_t rank,
                       std::int32_t world, const Digest& client_random);
std::optional<Hello> parse_hello(std::string_view bytes);
bool proves_token(const Hello& hello, std::string_view token, const Digest& server_random);

std::string make_verdict(Admission verdict, std::string_view token, const Digest& server_random,
                         const Hello& hello);
// Returns nothing if it is malformed, or says welcome without knowing the token.
std::optional<Admission> check_verdict(std::string_view bytes, std::string_view token,
                                       const Digest& server_random, const Digest& client_random,
                                       std::int32_t rank);

enum class FrameType : std::uint32_t {
  gather = 1,  // from a rank: a contribution
  report,      // from a rank: why it fails
  goodbye,     // from a rank: it ends in good order
  result,      // from the server: all contributions
  failed,      // from the server: the run has failed, and why
  flight,      // from a rank: what its flight record says
  heard,       // from the server: it has taken such a report
};

inline constexpr std::size_t frame_header = 8;
inline constexpr std::size_t contribution_limit = std::size_t{4} << 20;
inline constexpr std::size_t request_limit = contribution_limit + (std::size_t{512} << 10);  // sent to the
                                                                                             // server
inline constexpr std::size_t answer_limit = std::size_t{256} << 20;                          // sent to a rank
inline constexpr std::size_t channel_limit = 256;
inline constexpr std::size_t report_limit = 4096;
inline constexpr int world_limit = 65536;

struct Frame {
  FrameType type = FrameType::gather;
  std::string body;
};

std::string make_frame(FrameType type, std::string_view body);

// Cuts a stream of bytes into frames. Memory grows with the bytes that came, not with the length announced.
class FrameReader {
 public:
  explicit FrameReader(std::size_t body_limit) : limit_(body_limit) {}
  void add(std::string_view bytes) { pending_.append(bytes); }
  // Returns the next whole frame. Throws comm_failed when the stream is not one of frames.
  std::optional<Frame> next();

 private:
  std::size_t limit_;
  std::string pending_;
  std::size_t used_ = 0;
};

struct GatherRequest {
  std::string channel;
  std::vector<std::int32_t> members;
  std::uint32_t limit_ms = 0;
  std::string bytes;
};
std::string encode(const GatherRequest& request);
std::optional<GatherRequest> decode_gather(std::string_view body);

std::string encode_result(std::span<const std::string> parts);
std::optional<std::vector<std::string>> decode_result(std::string_view body);

// Holds what a rank's flight record says, for a reader with another clock: instead of when a rank entered, it
// states how long ago that was, in nanoseconds. It has the members of communicators that the rank is inside
// of, and no events.
struct FlightReport {
  std::uint32_t limit_ms = 0;   // limit of its time inside; 0: none
  bool stops = false;           // whether it was asked to end
  std::string doing;            // text of describe_flight()
  std::int64_t saved_ns = -1;   // time since a save advanced; -1: none has
  std::int64_t stands_ns = -1;  // time in which nothing came in a step; -1: none is under way
  std::vector<FlightCommunicator> communicators;
};
std::string encode(const FlightReport& report);
std::optional<FlightReport> decode_flight_report(std::string_view body);

// Holds the body of `report` and of `failed`.
struct FailureText {
  ErrorCode code = ErrorCode::internal;
  std::string text;
};
std::string encode(const FailureText& failure);
std::optional<FailureText> decode_failure(std::string_view body);

}  // namespace prun
