// Uses one epoll set for the port, its unknown peers and all ranks; nothing here blocks. Of its events, id 0
// is the port's, 1 + rank a rank's, and larger ones are unknown peers'.
#include "launch/rendezvous_server.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/text.hpp"
#include "launch/limits.hpp"
#include "launch/socket.hpp"

namespace prun {

RendezvousServer::RendezvousServer(int world)
    : world_(world),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      reception_(
          epoll_.get(), world, RankRoster::id_of(world), [this](const Hello& hello) { return judge(hello); },
          [this](int rank, std::unique_ptr<Connection> connection) { let_in(rank, std::move(connection)); }),
      ranks_(
          epoll_.get(), world, [this](int rank, const Frame& frame) { take_frame(rank, frame); },
          [this](int rank) { take_end(rank); }),
      watch_(world) {
  if (!epoll_.is_open())
    throw_error(ErrorCode::unsupported, "cannot make the rendezvous: ", refusal_text(errno));
}

// ------------------------------------------------------------------- who is here

Admission RendezvousServer::judge(const Hello& hello) const {
  if (hello.world != world_ || hello.rank < 0 || hello.rank >= world_) return Admission::wrong_world;
  return ranks_.has_come(hello.rank) ? Admission::rank_taken : Admission::welcome;
}

void RendezvousServer::let_in(int rank, std::unique_ptr<Connection> connection) {
  ranks_.let_in(rank, std::move(connection));
  if (failure_) ranks_.send(rank, make_frame(FrameType::failed, encode(*failure_)));
}

void RendezvousServer::take_end(int rank) {
  watch_.ended(rank);
  fail_gathers_without(rank);
}

// ------------------------------------------------------------------- events

void RendezvousServer::process() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (std::size_t i = 0; std::cmp_less(i, count); ++i) {
    const std::uint64_t id = events[i].data.u64;  // a copy, since it lies in a packed struct
    const bool has_room = events[i].events & EPOLLOUT;
    const bool has_more = events[i].events & ~EPOLLOUT;
    if (id == 0)
      reception_.accept_all();
    else if (id < RankRoster::id_of(world_))
      ranks_.process(static_cast<int>(id) - 1, has_room, has_more);
    else
      reception_.process(id, has_room, has_more);
  }
  expire();
  ranks_.sweep();
  gathers_.sweep();
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
    case FrameType::goodbye: return ranks_.take_goodbye(rank);
    case FrameType::flight:
      if (auto report = decode_flight_report(frame.body)) {
        watch_.take(rank, std::move(*report), flight_now_ns());
        return ranks_.send(rank, make_frame(FrameType::heard, {}));
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
    if (ranks_.is_gone(member)) return fail_gathers_without(member);
}

void RendezvousServer::finish(const GatherBoard::Gather& gather) {
  const std::string body = encode_result(gather.parts);
  if (body.size() > answer_limit)
    return fail({ErrorCode::internal, detail::concat("the contributions to ", in_quotes(gather.channel),
                                                     " have ", size_text(body.size()), " in all")});
  const std::string frame = make_frame(FrameType::result, body);
  for (const std::int32_t member : gather.members) ranks_.send(member, frame);
}

void RendezvousServer::fail_gathers_without(int rank) {
  const GatherBoard::Gather* const gather = gathers_.waiting_for(rank);
  if (!gather) return;
  const RankReport* const lost = ranks_.lost(rank);
  const std::string how =
      lost ? ": " + lost->text : " has ended and will not come to " + in_quotes(gather->channel);
  fail({ErrorCode::comm_failed, detail::concat("rank ", rank, how)});
}

void RendezvousServer::fail(const FailureText& why) {
  if (failure_) return;
  failure_ = why;
  gathers_.end_all();
  const std::string frame = make_frame(FrameType::failed, encode(why));
  for (int rank = 0; rank < world_; ++rank) ranks_.send(rank, frame);
}

// ------------------------------------------------------------------- time

void RendezvousServer::expire_gathers(Clock::time_point now) {
  const GatherBoard::Gather* const gather = gathers_.late(now);
  if (!gather) return;
  const GatherBoard::Absent absent = GatherBoard::absent_of(*gather);
  const bool never_came = absent.first >= 0 && !ranks_.has_come(absent.first);
  const std::string text = detail::concat(
      absent.text, " did not come to ", in_quotes(gather->channel), " within ", gather->limit_ms / 1000.0,
      " s", never_came && !wrong_token().empty() ? "; " + wrong_token() : std::string());
  reports_.push_back({absent.first, ErrorCode::hang, text});
  fail({ErrorCode::hang, text});
}

// A rank that has not come, and in whose name a peer came with another token, is given some time: strangers
// cannot end a run by it whose ranks have met.
std::optional<RendezvousServer::Clock::time_point> RendezvousServer::end_of_wait_for_impostor() const {
  constexpr auto limit = std::chrono::seconds(10);
  const Reception::Impostor* const impostor = reception_.impostor();
  if (failure_ || !impostor || impostor->rank < 0 || impostor->rank >= world_ ||
      ranks_.has_come(impostor->rank) || !gathers_.waiting_for(impostor->rank))
    return {};
  return impostor->since + limit;
}

void RendezvousServer::give_up_on_impostor(Clock::time_point now) {
  const std::optional<Clock::time_point> end = end_of_wait_for_impostor();
  if (!end || now < *end) return;
  const std::int32_t rank = reception_.impostor()->rank;
  const std::string text = "it has not come; " + wrong_token();
  reports_.push_back({rank, ErrorCode::bad_input, text});
  fail({ErrorCode::bad_input, detail::concat("rank ", rank, ": ", text)});
}

void RendezvousServer::expire() {
  const Clock::time_point now = Clock::now();
  reception_.expire(now);
  expire_gathers(now);
  give_up_on_impostor(now);
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
  if (const auto end = end_of_wait_for_impostor()) consider(*end);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

}  // namespace prun
