// Uses one epoll set for the port, its unknown peers and all ranks; nothing here blocks. Of its events, id 0
// is the port's, 1 + rank a rank's, and larger ones are unknown peers'.
#include "launch/rendezvous_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/text.hpp"
#include "launch/rendezvous_frames.hpp"
#include "launch/socket.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- connection

constexpr std::size_t unsent_limit = answer_limit + (std::size_t{1} << 20);

// Says how a connection ended: a process that dies closes its connection; a host or a link that is gone does
// not.
const char* end_by(int error) {
  return error == 0 || error == ECONNRESET || error == EPIPE
             ? "ended without a word"
             : "does not answer any more: its host or the network between is gone";
}

}  // namespace

Connection::Connection(int epoll, std::uint64_t id, FileDescriptor socket)
    : epoll_(epoll), id_(id), socket_(std::move(socket)) {
  watch(EPOLL_CTL_ADD);
}

void Connection::rename(std::uint64_t id) {
  id_ = id;
  watch(EPOLL_CTL_MOD);
}

void Connection::watch(int operation) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (awaits_room_) event.events |= EPOLLOUT;
  event.data.u64 = id_;
  if (::epoll_ctl(epoll_, operation, socket_.get(), &event) != 0)
    throw_error(ErrorCode::unsupported, "cannot watch a connection: ", refusal_text(errno));
}

void Connection::send(std::string_view bytes) {
  if (ended()) return;
  unsent_ += bytes;
  if (unsent_.size() > unsent_limit) return end();
  write();
}

void Connection::write() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count = ::send(socket_.get(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return end();
    sent += static_cast<std::size_t>(count);
  }
  unsent_.erase(0, sent);
  if (unsent_.empty() && closing_) return end();
  if (awaits_room_ == !unsent_.empty()) return;
  awaits_room_ = !unsent_.empty();
  watch(EPOLL_CTL_MOD);
}

std::string_view Connection::read(std::span<char> buffer) {
  for (;;) {
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) return {buffer.data(), static_cast<std::size_t>(count)};
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || errno != EAGAIN) end(end_by(count < 0 ? errno : 0));
    return {};
  }
}

void Connection::end(const char* how) {
  if (!ended()) how_ = how;
}

namespace {

// ------------------------------------------------------------------- rank roster

constexpr int reads_at_once = 16;  // reads of 64 KiB from one rank

}  // namespace

RankRoster::RankRoster(int epoll, int world, OnFrame on_frame, OnEnd on_end)
    : epoll_(epoll),
      on_frame_(std::move(on_frame)),
      on_end_(std::move(on_end)),
      ranks_(static_cast<std::size_t>(world)) {}

void RankRoster::adopt(int rank, FileDescriptor socket) {
  set_nonblocking(socket.get());
  ranks_[rank].connection = std::make_unique<Connection>(epoll_, id_of(rank), std::move(socket));
  ranks_[rank].seen = true;
}

void RankRoster::let_in(int rank, std::unique_ptr<Connection> connection) {
  connection->rename(id_of(rank));
  Rank& its = ranks_[rank];
  its.connection = std::move(connection);
  its.seen = true;
  if (its.connection->ended()) take_end(rank);
}

// Notes the end of a connection, which stays there until sweep(): another function may be using it.
void RankRoster::take_end(int rank) {
  Rank& its = ranks_[rank];
  if (std::exchange(its.gone, true)) return;
  if (!its.good_bye) lost_.push_back({rank, ErrorCode::rank_died, its.connection->how()});
  on_end_(rank);
}

void RankRoster::sweep() {
  for (Rank& rank : ranks_)
    if (rank.gone) rank.connection.reset();
}

void RankRoster::send(int rank, std::string_view bytes) {
  Rank& its = ranks_[rank];
  if (!its.connection || its.gone) return;
  its.connection->send(bytes);
  if (its.connection->ended()) take_end(rank);
}

void RankRoster::read(int rank) {
  Rank& its = ranks_[rank];
  std::array<char, 65536> buffer;
  for (int i = 0; i < reads_at_once && !its.gone; ++i) {
    const std::string_view bytes = its.connection->read(buffer);
    if (bytes.empty()) return;
    its.frames.add(bytes);
    try {
      while (const auto frame = its.frames.next()) on_frame_(rank, *frame);
    } catch (const Error&) {
      its.connection->end();
      return;
    }
  }
}

void RankRoster::process(int rank, bool has_room, bool has_more) {
  Rank& its = ranks_[rank];
  if (!its.connection || its.gone) return;
  if (has_room) its.connection->write();
  if (has_more && !its.connection->ended()) read(rank);
  if (its.connection->ended()) take_end(rank);
}

bool RankRoster::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.seen && rank.gone; });
}

bool RankRoster::all_came() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.seen; });
}

const RankReport* RankRoster::lost(int rank) const {
  const auto found =
      std::find_if(lost_.begin(), lost_.end(), [&](const RankReport& report) { return report.rank == rank; });
  return found == lost_.end() ? nullptr : &*found;
}

std::vector<RankReport> RankRoster::take_lost() { return std::exchange(lost_, {}); }

namespace {

// ------------------------------------------------------------------- reception

using namespace std::chrono_literals;

constexpr auto hello_limit = 2s;
constexpr auto listening_pause = 100ms;
constexpr int spare_strangers = 16;
constexpr int accepts_at_once = spare_strangers;  // so that a rank is heard before it has to make room

}  // namespace

Reception::Reception(int epoll, int world, std::uint64_t first_id, Judge judge, LetIn let_in)
    : epoll_(epoll),
      most_strangers_(static_cast<std::size_t>(world + spare_strangers)),
      next_id_(first_id),
      judge_(std::move(judge)),
      let_in_(std::move(let_in)) {}

// ------------------------------------------------------------------- the port

void Reception::listen(FileDescriptor listener, std::string token) {
  listener_ = std::move(listener);
  token_ = std::move(token);
  set_nonblocking(listener_.get());
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    throw_error(ErrorCode::unsupported, "cannot watch the rendezvous' port: ", refusal_text(errno));
}

void Reception::pause(bool paused) {
  paused_ = paused;
  resume_at_ = Clock::now() + listening_pause;
  epoll_event event{};
  if (!paused) event.events = EPOLLIN;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_.get(), &event);
}

void Reception::accept_all() {
  for (int i = 0; i < accepts_at_once; ++i) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) pause(true);  // no descriptors left, for example
      return;
    }
    try {
      greet(std::move(socket));
    } catch (const Error&) {
      return pause(true);  // out of kernel memory: the run itself needs none
    }
    make_room();
  }
}

// ------------------------------------------------------------------- strangers

void Reception::greet(FileDescriptor socket) {
  tune_tcp(socket.get());
  const std::uint64_t id = next_id_++;
  Stranger stranger{std::make_unique<Connection>(epoll_, id, std::move(socket)), random_digest(), {}};
  stranger.connection->send(make_greeting(stranger.random));
  strangers_.emplace(id, std::move(stranger));
}

// Makes room: the oldest unknown peer is dropped, since an honest rank needs such a place for one round trip
// only.
void Reception::make_room() {
  sweep();
  if (strangers_.size() > most_strangers_) strangers_.erase(strangers_.begin());
}

void Reception::process(std::uint64_t id, bool has_room, bool has_more) {
  const auto found = strangers_.find(id);
  if (found == strangers_.end()) return;
  Stranger& stranger = found->second;
  if (has_room) stranger.connection->write();
  if (has_more && !stranger.connection->ended()) read(stranger);
  if (!stranger.connection || stranger.connection->ended()) strangers_.erase(found);
}

// Reads bytes up to the size of a hello, and no further before its proof is checked. A peer that was refused
// is not read any more.
void Reception::read(Stranger& stranger) {
  if (stranger.hello.size() == hello_size) return stranger.connection->end();
  std::array<char, hello_size> buffer;
  while (stranger.hello.size() < hello_size) {
    const std::string_view bytes =
        stranger.connection->read(std::span(buffer).first(hello_size - stranger.hello.size()));
    if (bytes.empty()) return;
    stranger.hello += bytes;
  }
  take_hello(stranger);
}

void Reception::take_hello(Stranger& stranger) {
  Connection& connection = *stranger.connection;
  const std::optional<Hello> hello = parse_hello(stranger.hello);
  if (!hello) return connection.end();
  const Admission verdict = verdict_on(*hello, stranger);
  if (verdict != Admission::welcome) connection.close_when_sent();
  connection.send(make_verdict(verdict, token_, stranger.random, *hello));
  if (verdict == Admission::welcome) let_in_(hello->rank, std::move(stranger.connection));
}

Admission Reception::verdict_on(const Hello& hello, const Stranger& stranger) {
  if (proves_token(hello, token_, stranger.random)) return judge_(hello);
  if (!impostor_ || impostor_->rank != hello.rank)
    impostor_ = {hello.rank, Clock::now(),
                 detail::concat("a process that calls itself rank ", hello.rank,
                                " came with another token; give all ranks the same PRUN_TOKEN")};
  return Admission::wrong_token;
}

// ------------------------------------------------------------------- time

void Reception::expire(Clock::time_point now) {
  while (!strangers_.empty() && now - strangers_.begin()->second.connection->since() >= hello_limit)
    strangers_.erase(strangers_.begin());
  if (paused_ && now >= resume_at_) pause(false);
}

std::optional<Reception::Clock::time_point> Reception::deadline() const {
  std::optional<Clock::time_point> next;
  if (!strangers_.empty()) next = strangers_.begin()->second.connection->since() + hello_limit;
  if (paused_) next = next ? std::min(*next, resume_at_) : resume_at_;
  return next;
}

void Reception::sweep() {
  std::erase_if(strangers_, [](const auto& entry) { return entry.second.connection->ended(); });
}

// ------------------------------------------------------------------- gather board

// Returns the gather that waits for this contribution, or a new one.
GatherBoard::Gather& GatherBoard::gather_for(const GatherRequest& request, Clock::time_point now) {
  for (const auto& gather : gathers_)
    if (!gather->done && gather->channel == request.channel && gather->members == request.members)
      return *gather;
  auto gather = std::make_unique<Gather>();
  gather->channel = request.channel;
  gather->members = request.members;
  gather->parts.resize(request.members.size());
  gather->here.resize(request.members.size());
  gather->missing = request.members.size();
  gather->limit_ms = request.limit_ms;
  gather->deadline = now + std::chrono::milliseconds(request.limit_ms);
  gathers_.push_back(std::move(gather));
  return *gathers_.back();
}

GatherBoard::Gather& GatherBoard::add(int rank, int world, GatherRequest request, Clock::time_point now) {
  const auto& members = request.members;
  for (const std::int32_t member : members)
    if (member < 0 || member >= world) throw_error(ErrorCode::comm_failed, "no such rank: ", member);
  const auto me = std::find(members.begin(), members.end(), rank);
  if (me == members.end())
    throw_error(ErrorCode::comm_failed, "rank ", rank, " is no member of its own group");
  const auto slot = static_cast<std::size_t>(me - members.begin());
  Gather& gather = gather_for(request, now);
  if (gather.here[slot]) throw_error(ErrorCode::comm_failed, "rank ", rank, " contributes twice");
  gather.here[slot] = 1;
  gather.parts[slot] = std::move(request.bytes);
  gather.done = --gather.missing == 0;
  return gather;
}

const GatherBoard::Gather* GatherBoard::waiting_for(int rank) const {
  for (const auto& gather : gathers_) {
    const auto& members = gather->members;
    const auto slot =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    if (!gather->done && slot != members.size() && !gather->here[slot]) return gather.get();
  }
  return nullptr;
}

const GatherBoard::Gather* GatherBoard::late(Clock::time_point now) const {
  for (const auto& gather : gathers_)
    if (!gather->done && gather->deadline <= now) return gather.get();
  return nullptr;
}

GatherBoard::Absent GatherBoard::absent_of(const Gather& gather) {
  Absent absent;
  std::string list;
  int count = 0;
  for (std::size_t i = 0; i < gather.members.size(); ++i) {
    if (gather.here[i]) continue;
    if (count == 0) absent.first = gather.members[i];
    if (++count <= 8) list += (count > 1 ? ", " : "") + std::to_string(gather.members[i]);
  }
  absent.text = (count == 1 ? "rank " : "ranks ") + list + (count > 8 ? ", ..." : "");
  return absent;
}

void GatherBoard::end_all() {
  for (const auto& gather : gathers_) gather->done = true;
}

void GatherBoard::sweep() {
  std::erase_if(gathers_, [](const auto& gather) { return gather->done; });
}

// ------------------------------------------------------------------- rendezvous server

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
