#include "launch/socket.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- limits

const char* remedy_for(int error) {
  switch (error) {
    case EMFILE: return "; raise the limit on open files (ulimit -n)";
    case ENFILE: return "; this machine has too many open files";
    case EAGAIN:
      return "; raise the limit on processes and threads (ulimit -u, or pids.max of the container)";
    case ENOMEM:
      return "; raise the limit on address space (ulimit -v) or on the container's memory, or free memory";
    case EFBIG: return "; raise the limit on the size of files (ulimit -f)";
    default: return "";
  }
}

}  // namespace

std::string refusal_text(int error) { return std::string(std::strerror(error)) + remedy_for(error); }

namespace {

// ------------------------------------------------------------------- socket

constexpr int silent_seconds = 2;  // silence before a peer is probed, and between probes
constexpr int vanished_ms = 6000;
constexpr int backlog = 4096;

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0)
    throw_error(ErrorCode::bad_input, "no address for rank 0's host ", in_quotes(host), " (",
                ::gai_strerror(error), "); set PRUN_MASTER to one that every rank can reach");
  return Addresses(list);
}

// Returns false at the deadline.
bool wait_until(int fd, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, static_cast<int>(std::min<long long>(left, 3'600'000))) > 0) return true;
  }
}

FileDescriptor new_socket(const addrinfo& address) {
  return FileDescriptor(
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

}  // namespace

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

void tune_tcp(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, silent_seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, silent_seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, vanished_ms / 1000 / silent_seconds - 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, vanished_ms);
}

std::pair<FileDescriptor, FileDescriptor> connected_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw_error(ErrorCode::unsupported, "cannot make a socket: ", refusal_text(errno));
  const FileDescriptor low[2] = {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  FileDescriptor high[2];
  for (int i = 0; i < 2; ++i) {
    high[i] = FileDescriptor(::fcntl(low[i].get(), F_DUPFD_CLOEXEC, 3));
    if (!high[i].is_open())
      throw_error(ErrorCode::unsupported, "cannot make a socket: ", refusal_text(errno));
  }
  return {std::move(high[0]), std::move(high[1])};
}

FileDescriptor listen_at(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port);
  int error = 0;
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    FileDescriptor socket = new_socket(*at);
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket.is_open() && ::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.get(), backlog) == 0)
      return socket;
    error = errno;
  }
  throw_error(ErrorCode::comm_failed, "rank 0 cannot listen at ", host, ":", port, ": ", std::strerror(error),
              "; PRUN_MASTER and PRUN_MASTER_PORT, the same on every rank, choose another place");
}

std::optional<FileDescriptor> connect_to(const std::string& host, int port, Deadline deadline) {
  const Addresses addresses = addresses_of(host, port);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    FileDescriptor socket = new_socket(*at);
    if (!socket.is_open()) continue;
    tune_tcp(socket.get());
    int error = ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS && wait_until(socket.get(), POLLOUT, deadline)) {
      socklen_t size = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return socket;
  }
  return {};
}

std::optional<std::string> receive(int fd, std::size_t bytes, Deadline deadline) {
  std::string out(bytes, '\0');
  for (std::size_t got = 0; got < bytes;) {
    const ssize_t count = ::recv(fd, out.data() + got, bytes - got, 0);
    if (count > 0) {
      got += static_cast<std::size_t>(count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || errno != EAGAIN || !wait_until(fd, POLLIN, deadline)) return {};
  }
  return out;
}

bool send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !wait_until(fd, POLLOUT, deadline)) return false;
  }
  return true;
}

}  // namespace prun
