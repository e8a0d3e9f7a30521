#include "launch/reception.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launch/limits.hpp"
#include "launch/socket.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

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

}  // namespace prun
