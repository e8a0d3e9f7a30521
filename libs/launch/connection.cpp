#include "launch/connection.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "launch/limits.hpp"
#include "launch/rendezvous_frames.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

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

}  // namespace prun
