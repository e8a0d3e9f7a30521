// Uses one epoll set for the port, its unknown peers and all ranks; nothing here blocks. Of its events, id 0
// is the port's, 1 + rank a rank's, and larger ones are unknown peers'.
#include "train/launch/rendezvous_server.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "train/launch/socket.hpp"

namespace prun {
namespace {

constexpr int reads_at_once = 16;  // reads of 64 KiB from one rank

std::uint64_t id_of(int rank) { return static_cast<std::uint64_t>(rank) + 1; }

}  // namespace

RendezvousServer::RendezvousServer(int world)
    : world_(world),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      reception_(
          epoll_.get(), world, id_of(world), [this](const Hello& hello) { return judge(hello); },
          [this](int rank, std::unique_ptr<Connection> connection) { let_in(rank, std::move(connection)); }),
      ranks_(static_cast<std::size_t>(world)),
      watch_(world) {
  if (!epoll_.is_open())
    throw_error(ErrorCode::unsupported, "cannot make the rendezvous: ", refusal_text(errno));
}

int RendezvousServer::fd() const { return epoll_.get(); }

// ------------------------------------------------------------------- who is here

void RendezvousServer::adopt(int rank, FileDescriptor socket) {
  set_nonblocking(socket.get());
  of(rank).connection = std::make_unique<Connection>(epoll_.get(), id_of(rank), std::move(socket));
  of(rank).seen = true;
}

Admission RendezvousServer::judge(const Hello& hello) const {
  if (hello.world != world_ || hello.rank < 0 || hello.rank >= world_) return Admission::wrong_world;
  return ranks_[hello.rank].seen ? Admission::rank_taken : Admission::welcome;
}

void RendezvousServer::let_in(int rank, std::unique_ptr<Connection> connection) {
  connection->rename(id_of(rank));
  of(rank).connection = std::move(connection);
  of(rank).seen = true;
  if (of(rank).connection->ended()) return take_end(rank);
  if (failure_) send(rank, make_frame(FrameType::failed, encode(*failure_)));
}

// Notes the end of a connection, which stays there until sweep(): another function may be using it.
void RendezvousServer::take_end(int rank) {
  Rank& its = of(rank);
  if (std::exchange(its.gone, true)) return;
  if (!its.good_bye) lost_.push_back({rank, ErrorCode::rank_died, its.connection->how()});
  watch_.ended(rank);
  fail_gathers_without(rank);
}

void RendezvousServer::sweep() {
  for (Rank& rank : ranks_)
    if (rank.gone) rank.connection.reset();
  gathers_.sweep();
}

bool RendezvousServer::finished() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.seen && rank.gone; });
}

bool RendezvousServer::all_came() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.seen; });
}

// ------------------------------------------------------------------- bytes

void RendezvousServer::send(int rank, std::string_view bytes) {
  Rank& its = of(rank);
  if (!its.connection || its.gone) return;
  its.connection->send(bytes);
  if (its.connection->ended()) take_end(rank);
}

void RendezvousServer::read(int rank) {
  Rank& its = of(rank);
  std::array<char, 65536> buffer;
  for (int i = 0; i < reads_at_once && !its.gone; ++i) {
    const std::string_view bytes = its.connection->read(buffer);
    if (bytes.empty()) return;
    its.frames.add(bytes);
    try {
      while (const auto frame = its.frames.next()) take_frame(rank, *frame);
    } catch (const Error&) {
      its.connection->end();
      return;
    }
  }
}

void RendezvousServer::process(int rank, bool has_room, bool has_more) {
  Rank& its = of(rank);
  if (!its.connection || its.gone) return;
  if (has_room) its.connection->write();
  if (has_more && !its.connection->ended()) read(rank);
  if (its.connection->ended()) take_end(rank);
}

void RendezvousServer::process() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (std::size_t i = 0; std::cmp_less(i, count); ++i) {
    const std::uint64_t id = events[i].data.u64;  // a copy, since it lies in a packed struct
    const bool has_room = events[i].events & EPOLLOUT;
    const bool has_more = events[i].events & ~EPOLLOUT;
    if (id == 0)
      reception_.accept_all();
    else if (id < id_of(world_))
      process(static_cast<int>(id) - 1, has_room, has_more);
    else
      reception_.process(id, has_room, has_more);
  }
  expire();
  sweep();
}

// ------------------------------------------------------------------- what ranks say

void RendezvousServer::take_frame(int rank, const Frame& frame) {
  switch (frame.type) {
    case FrameType::gather:
      if (auto request = decode_gather(frame.body)) return take_gather(rank, std::move(*request));
      break;
    case FrameType::report:
      if (auto failure = decode_failure(frame.body)) return take_report(rank, *failure);
      break;
    case FrameType::goodbye: of(rank).good_bye = true; return;
    case FrameType::flight:
      if (auto report = decode_flight_report(frame.body)) {
        watch_.take(rank, std::move(*report), flight_now_ns());
        return send(rank, make_frame(FrameType::heard, {}));
      }
      break;
    case FrameType::result:
    case FrameType::failed:
    case FrameType::heard: break;
  }
  throw_error(ErrorCode::comm_failed, "rank ", rank, " sends a frame that it must not");
}

// Takes a report and passes it on at once: the rank may be gone before the reports are read.
void RendezvousServer::take_report(int rank, const FailureText& failure) {
  const std::string text = printable(failure.text, report_limit);
  reports_.push_back({rank, failure.code, text});
  const ErrorCode consequence = failure.code == ErrorCode::hang ? ErrorCode::hang : ErrorCode::comm_failed;
  fail({consequence, detail::concat("rank ", rank, ": ", text)});
}

void RendezvousServer::take_gather(int rank, GatherRequest request) {
  if (failure_) return;  // the rank has been told
  const GatherBoard::Gather& gather = gathers_.add(rank, world_, std::move(request), Clock::now());
  if (gather.done) return finish(gather);
  for (const std::int32_t member : gather.members)
    if (of(member).gone) return fail_gathers_without(member);
}

void RendezvousServer::finish(const GatherBoard::Gather& gather) {
  const std::string body = encode_result(gather.parts);
  if (body.size() > answer_limit)
    return fail(
        {ErrorCode::internal, detail::concat("the contributions to ", in_quotes(gather.channel), " have ",
                                             size_text(static_cast<double>(body.size())), " in all")});
  const std::string frame = make_frame(FrameType::result, body);
  for (const std::int32_t member : gather.members) send(member, frame);
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
  for (int rank = 0; rank < world_; ++rank) send(rank, frame);
}

std::vector<RankReport> RendezvousServer::take_reports() { return std::exchange(reports_, {}); }
std::vector<RankReport> RendezvousServer::take_lost() { return std::exchange(lost_, {}); }

// ------------------------------------------------------------------- time

void RendezvousServer::expire_gathers(Clock::time_point now) {
  const GatherBoard::Gather* const gather = gathers_.late(now);
  if (!gather) return;
  const GatherBoard::Absent absent = GatherBoard::absent_of(*gather);
  const bool never_came = absent.first >= 0 && !of(absent.first).seen;
  const std::string text = detail::concat(
      absent.text, " did not come to ", in_quotes(gather->channel), " within ", gather->limit_ms / 1000.0,
      " s", never_came && !wrong_token().empty() ? "; " + wrong_token() : std::string());
  reports_.push_back({absent.first, ErrorCode::hang, text});
  fail({ErrorCode::hang, text});
}

void RendezvousServer::expire() {
  const Clock::time_point now = Clock::now();
  reception_.expire(now);
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
  std::optional<Clock::time_point> next = reception_.deadline();
  const auto consider = [&](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  gathers_.each_deadline(consider);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

}  // namespace prun
