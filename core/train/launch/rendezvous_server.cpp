// One epoll set over all connections; nothing here blocks.
#include "train/launch/rendezvous_server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "train/launch/socket.hpp"

namespace prun {
namespace {

using namespace std::chrono_literals;

constexpr auto hello_limit = 2s;
constexpr auto listening_pause = 100ms;
constexpr int spare_strangers = 16;
constexpr int accepts_at_once = spare_strangers;  // a rank among them is heard before it has to make room
constexpr int reads_at_once = 16;                 // of 64 KiB, from one connection
constexpr std::size_t unsent_limit = answer_limit + (std::size_t{1} << 20);

// A process that dies closes its connection; a host or a link that is gone does not.
const char* lost_text(int error) {
  return error == 0 || error == ECONNRESET || error == EPIPE
             ? "ended without a word"
             : "does not answer any more: its host or the network between is gone";
}

}  // namespace

struct RendezvousServer::Connection {
  std::uint64_t id = 0;
  FileDescriptor socket;
  int rank = -1;  // of a stranger
  bool good_bye = false;
  bool closing = false;  // once everything is sent
  bool dropped = false;
  bool awaits_room = false;  // for what is unsent
  Clock::time_point since{};
  Digest random{};
  std::string hello;
  FrameReader frames{request_limit};
  std::string unsent;
};

RendezvousServer::RendezvousServer(int world)
    : world_(world),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      by_rank_(static_cast<std::size_t>(world)),
      seen_(static_cast<std::size_t>(world)),
      gone_(static_cast<std::size_t>(world)),
      watch_(world) {
  if (!epoll_.is_open())
    throw_error(ErrorCode::unsupported, "cannot make the rendezvous: ", refusal_text(errno));
}

RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::fd() const { return epoll_.get(); }

// ------------------------------------------------------------------- connections

std::uint64_t RendezvousServer::add(FileDescriptor socket) {
  auto connection = std::make_unique<Connection>();
  connection->id = next_id_++;
  connection->since = Clock::now();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = connection->id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
    throw_error(ErrorCode::unsupported, "cannot watch a connection: ", refusal_text(errno));
  connection->socket = std::move(socket);
  const std::uint64_t id = connection->id;
  connections_.emplace(id, std::move(connection));
  return id;
}

void RendezvousServer::adopt(int rank, FileDescriptor socket) {
  set_nonblocking(socket.get());
  const std::uint64_t id = add(std::move(socket));
  connections_.at(id)->rank = rank;
  by_rank_[static_cast<std::size_t>(rank)] = id;
  seen_[static_cast<std::size_t>(rank)] = 1;
}

void RendezvousServer::listen(FileDescriptor listener, std::string token) {
  listener_ = std::move(listener);
  token_ = std::move(token);
  set_nonblocking(listener_.get());
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    throw_error(ErrorCode::unsupported, "cannot watch the rendezvous' port: ", refusal_text(errno));
}

void RendezvousServer::pause_listening(bool pause) {
  paused_ = pause;
  resume_at_ = Clock::now() + listening_pause;
  epoll_event event{};
  if (!pause) event.events = EPOLLIN;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

// The oldest stranger goes: an honest rank needs a stranger's place for one round trip only.
void RendezvousServer::make_room() {
  Connection* oldest = nullptr;
  int strangers = 0;
  for (const auto& [id, connection] : connections_) {
    if (connection->rank >= 0 || connection->dropped) continue;
    if (!oldest) oldest = connection.get();
    ++strangers;
  }
  if (strangers > world_ + spare_strangers) drop(*oldest);
}

void RendezvousServer::greet(FileDescriptor socket) {
  tune_tcp(socket.get());
  Connection& connection = *connections_.at(add(std::move(socket)));
  connection.random = random_digest();
  send(connection, make_greeting(connection.random));
}

void RendezvousServer::accept_all() {
  for (int i = 0; i < accepts_at_once; ++i) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) pause_listening(true);  // no descriptors left, for example
      return;
    }
    try {
      greet(std::move(socket));
    } catch (const Error&) {
      return pause_listening(true);  // out of kernel memory: the run itself needs none
    }
    make_room();
    sweep();
  }
}

void RendezvousServer::drop(Connection& connection, const char* how) {
  if (connection.dropped) return;
  connection.dropped = true;
  const int rank = connection.rank;
  if (rank < 0) return;
  by_rank_[static_cast<std::size_t>(rank)] = 0;
  gone_[static_cast<std::size_t>(rank)] = 1;
  if (!connection.good_bye) lost_.push_back({rank, ErrorCode::rank_died, how});
  watch_.ended(rank);
  fail_gathers_without(rank);
}

void RendezvousServer::sweep() {
  std::erase_if(connections_, [](const auto& entry) { return entry.second->dropped; });
  gathers_.sweep();
}

RendezvousServer::Connection* RendezvousServer::of_rank(int rank) {
  const std::uint64_t id = by_rank_[static_cast<std::size_t>(rank)];
  const auto found = connections_.find(id);
  return id == 0 || found == connections_.end() ? nullptr : found->second.get();
}

bool RendezvousServer::finished() const {
  for (std::size_t rank = 0; rank < seen_.size(); ++rank)
    if (by_rank_[rank] != 0 || !seen_[rank]) return false;
  return true;
}

bool RendezvousServer::all_came() const {
  return std::all_of(seen_.begin(), seen_.end(), [](char seen) { return seen != 0; });
}

// ------------------------------------------------------------------- bytes

void RendezvousServer::send(Connection& connection, std::string bytes) {
  connection.unsent += bytes;
  if (connection.unsent.size() > unsent_limit) return drop(connection);
  write(connection);
}

void RendezvousServer::write(Connection& connection) {
  std::size_t sent = 0;
  while (sent < connection.unsent.size()) {
    const ssize_t count = ::send(connection.socket.get(), connection.unsent.data() + sent,
                                 connection.unsent.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return drop(connection);
    sent += static_cast<std::size_t>(count);
  }
  connection.unsent.erase(0, sent);
  const bool awaits_room = !connection.unsent.empty();
  if (!awaits_room && connection.closing) return drop(connection);
  if (awaits_room == connection.awaits_room) return;
  connection.awaits_room = awaits_room;
  epoll_event event{};
  event.events = EPOLLIN;
  if (awaits_room) event.events |= EPOLLOUT;
  event.data.u64 = connection.id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
}

// A stranger's bytes are read up to the size of a hello, and no further before its proof is checked.
void RendezvousServer::read(Connection& connection) {
  char buffer[65536];
  for (int i = 0; i < reads_at_once && !connection.dropped; ++i) {
    const bool stranger = connection.rank < 0;
    const std::size_t wanted = stranger ? hello_size - connection.hello.size() : sizeof buffer;
    const ssize_t count = ::recv(connection.socket.get(), buffer, wanted, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return drop(connection, lost_text(count < 0 ? errno : 0));
    const std::string_view bytes(buffer, static_cast<std::size_t>(count));
    if (stranger) {
      connection.hello += bytes;
      if (connection.hello.size() == hello_size) return take_hello(connection);
      continue;
    }
    connection.frames.add(bytes);
    try {
      while (const auto frame = connection.frames.next()) take_frame(connection, *frame);
    } catch (const Error&) {
      drop(connection);
    }
  }
}

void RendezvousServer::process() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;  // which lies in a packed struct
    if (id == 0) {
      accept_all();
      continue;
    }
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    if (!connection.dropped && (events[i].events & EPOLLOUT)) write(connection);
    if (!connection.dropped && (events[i].events & ~EPOLLOUT)) read(connection);
  }
  expire();
  sweep();
}

// ------------------------------------------------------------------- what ranks say

void RendezvousServer::take_hello(Connection& connection) {
  const std::optional<Hello> hello = parse_hello(connection.hello);
  if (!hello) return drop(connection);
  Admission verdict = Admission::welcome;
  if (!proves_token(*hello, token_, connection.random))
    verdict = Admission::wrong_token;
  else if (hello->world != world_ || hello->rank < 0 || hello->rank >= world_)
    verdict = Admission::wrong_world;
  else if (seen_[static_cast<std::size_t>(hello->rank)])
    verdict = Admission::rank_taken;
  if (verdict == Admission::wrong_token)
    wrong_token_ = detail::concat("a process that calls itself rank ", hello->rank,
                                  " came with another token; give all ranks the same PRUN_TOKEN");
  connection.closing = verdict != Admission::welcome;
  if (verdict == Admission::welcome) {
    connection.rank = hello->rank;
    by_rank_[static_cast<std::size_t>(hello->rank)] = connection.id;
    seen_[static_cast<std::size_t>(hello->rank)] = 1;
  }
  send(connection, make_verdict(verdict, token_, connection.random, *hello));
  if (failure_ && !connection.dropped && !connection.closing)
    send(connection, make_frame(FrameType::failed, encode(*failure_)));
}

void RendezvousServer::take_frame(Connection& connection, const Frame& frame) {
  switch (frame.type) {
    case FrameType::gather:
      if (auto request = decode_gather(frame.body)) return take_gather(connection, std::move(*request));
      break;
    case FrameType::report:
      if (auto failure = decode_failure(frame.body)) return take_report(connection.rank, *failure);
      break;
    case FrameType::goodbye: connection.good_bye = true; return;
    case FrameType::flight:
      if (auto report = decode_flight_report(frame.body)) {
        watch_.take(connection.rank, std::move(*report), flight_now_ns());
        return send(connection, make_frame(FrameType::heard, {}));
      }
      break;
    case FrameType::result:
    case FrameType::failed:
    case FrameType::heard: break;
  }
  throw_error(ErrorCode::comm_failed, "rank ", connection.rank, " sends a frame that it must not");
}

// Passed on at once: the rank may be gone before anybody has asked for the reports.
void RendezvousServer::take_report(int rank, const FailureText& failure) {
  const std::string text = printable(failure.text, report_limit);
  reports_.push_back({rank, failure.code, text});
  const ErrorCode consequence = failure.code == ErrorCode::hang ? ErrorCode::hang : ErrorCode::comm_failed;
  fail({consequence, detail::concat("rank ", rank, ": ", text)});
}

void RendezvousServer::take_gather(Connection& connection, GatherRequest request) {
  if (failure_) return;  // it has been told
  const GatherBoard::Gather& gather = gathers_.add(connection.rank, world_, std::move(request), Clock::now());
  if (gather.done) return finish(gather);
  for (const std::int32_t member : gather.members)
    if (gone_[static_cast<std::size_t>(member)]) return fail_gathers_without(member);
}

void RendezvousServer::finish(const GatherBoard::Gather& gather) {
  const std::string body = encode_result(gather.parts);
  if (body.size() > answer_limit)
    return fail(
        {ErrorCode::internal, detail::concat("the contributions to ", in_quotes(gather.channel), " have ",
                                             size_text(static_cast<double>(body.size())), " in all")});
  const std::string frame = make_frame(FrameType::result, body);
  for (const std::int32_t member : gather.members)
    if (Connection* connection = of_rank(member)) send(*connection, frame);
}

void RendezvousServer::fail_gathers_without(int rank) {
  const GatherBoard::Gather* const gather = gathers_.waiting_for(rank);
  if (!gather) return;
  const auto lost =
      std::find_if(lost_.begin(), lost_.end(), [&](const RankReport& report) { return report.rank == rank; });
  const std::string how = lost == lost_.end()
                              ? " has ended and will not come to " + in_quotes(gather->channel)
                              : ": " + lost->text;
  fail({ErrorCode::comm_failed, detail::concat("rank ", rank, how)});
}

void RendezvousServer::fail(const FailureText& why) {
  if (failure_) return;
  failure_ = why;
  gathers_.end_all();
  const std::string frame = make_frame(FrameType::failed, encode(why));
  for (int rank = 0; rank < world_; ++rank)
    if (Connection* connection = of_rank(rank)) send(*connection, frame);
}

std::vector<RankReport> RendezvousServer::take_reports() { return std::exchange(reports_, {}); }
std::vector<RankReport> RendezvousServer::take_lost() { return std::exchange(lost_, {}); }

// ------------------------------------------------------------------- time

void RendezvousServer::expire_gathers(Clock::time_point now) {
  const GatherBoard::Gather* const gather = gathers_.late(now);
  if (!gather) return;
  const GatherBoard::Absent absent = GatherBoard::absent_of(*gather);
  const bool never_came = absent.first >= 0 && !seen_[static_cast<std::size_t>(absent.first)];
  const std::string text = detail::concat(
      absent.text, " did not come to ", in_quotes(gather->channel), " within ", gather->limit_ms / 1000.0,
      " s", never_came && !wrong_token_.empty() ? "; " + wrong_token_ : std::string());
  reports_.push_back({absent.first, ErrorCode::hang, text});
  fail({ErrorCode::hang, text});
}

void RendezvousServer::expire() {
  const Clock::time_point now = Clock::now();
  for (const auto& [id, connection] : connections_) {
    if (connection->rank >= 0 || connection->dropped) continue;
    if (now - connection->since < hello_limit) break;  // the others are younger
    drop(*connection);
  }
  if (paused_ && now >= resume_at_) pause_listening(false);
  expire_gathers(now);
  watch_for_hangs();
}

void RendezvousServer::watch_for_hangs() {
  if (failure_) return;
  const std::optional<Hang> hang = watch_.find(flight_now_ns());
  if (!hang) return;
  reports_.push_back({hang->culprit, ErrorCode::hang, hang->reason});
  fail({ErrorCode::hang, detail::concat("rank ", hang->culprit, " ", hang->reason)});
}

int RendezvousServer::wait_ms() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [id, connection] : connections_)
    if (connection->rank < 0) {
      consider(connection->since + hello_limit);
      break;
    }
  gathers_.each_deadline(consider);
  if (paused_) consider(resume_at_);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

}  // namespace prun
