// Fuzz entry for what ranks and the rendezvous say to each other: a message that is taken says the same once
// it is written again, and a server that three ranks send anything at all neither fails nor forgets who is
// there. An input is a row of messages: which rank, which type, a length of two bytes, the body; a type that
// there is not sends the body alone, which is no frame then.
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/rendezvous_server.hpp"

namespace {

using namespace prun;

void require(bool condition) {
  if (!condition) std::abort();
}

template <class Decoded>
void check_same(const std::optional<Decoded>& once, std::optional<Decoded> (*decode)(std::string_view)) {
  if (!once) return;
  const std::string text = encode(*once);
  const std::optional<Decoded> twice = decode(text);
  require(twice && encode(*twice) == text);
}

void decode_all(std::string_view body) {
  check_same(decode_gather(body), decode_gather);
  check_same(decode_flight_report(body), decode_flight_report);
  check_same(decode_failure(body), decode_failure);
  if (const auto parts = decode_result(body)) require(encode_result(*parts) == body);
  const Digest random{};
  if (const auto greeting = parse_greeting(body)) require(make_greeting(*greeting) == body);
  if (const auto hello = parse_hello(body)) require(!proves_token(*hello, "token", random));
  if (const auto verdict = check_verdict(body, "token", random, random, 0))
    require(*verdict != Admission::welcome);
}

// The same stream cut anywhere has the same frames.
void read_frames(std::string_view bytes) {
  std::array<std::string, 2> bodies;
  for (std::size_t piece : {bytes.size() + 1, std::size_t{3}}) {
    FrameReader reader(4096);
    try {
      for (std::size_t at = 0; at < bytes.size(); at += piece) {
        reader.add(bytes.substr(at, piece));
        while (const auto frame = reader.next()) bodies[piece == 3] += frame->body + "|";
      }
    } catch (const Error& error) {
      require(error.code() == ErrorCode::comm_failed);
      bodies[piece == 3] += "!";
    }
  }
  require(bodies[0] == bodies[1]);
}

class Ranks {
 public:
  Ranks() : server_(count) {
    for (int rank = 0; rank < count; ++rank) {
      int ends[2];
      require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
      server_.adopt(rank, FileDescriptor(ends[0]));
      ends_[static_cast<std::size_t>(rank)] = FileDescriptor(ends[1]);
    }
  }

  void send(int rank, std::string_view bytes) {
    const int end = ends_[static_cast<std::size_t>(rank)].get();
    if (::send(end, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0) server_.process();
    char answer[4096];
    while (::recv(end, answer, sizeof answer, 0) > 0) {
    }
  }

  void end() {
    for (FileDescriptor& end : ends_) end = FileDescriptor();
    server_.process();
    require(server_.finished() && server_.all_came());
    require(server_.take_lost().size() <= static_cast<std::size_t>(count));
    for (const RankReport& report : server_.take_reports())
      require(report.rank >= 0 && report.rank < count && report.text.size() <= 4 * report_limit);
  }

  static constexpr int count = 3;

 private:
  RendezvousServer server_;
  std::array<FileDescriptor, count> ends_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view left(reinterpret_cast<const char*>(data), size);
  decode_all(left);
  read_frames(left);
  Ranks ranks;
  while (left.size() >= 4) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(left[i]); };
    const int rank = byte(0) % Ranks::count, type = byte(1) % 9;
    const std::size_t length = byte(2) | static_cast<std::size_t>(byte(3)) << 8;
    const std::string_view body = left.substr(4, length);
    left.remove_prefix(4 + body.size());
    ranks.send(rank, type == 8 ? std::string(body) : make_frame(static_cast<FrameType>(type), body));
  }
  ranks.end();
  return 0;
}
