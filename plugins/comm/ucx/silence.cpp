// /proc/self/fdinfo/N of an epoll descriptor names what it watches: `tfd: M events: ...`, one a line.
#include "silence.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fstream>
#include <string>

namespace prun::ucx {
namespace {

constexpr int deepest = 4;  // bounds how far epoll watches epoll

void limit_within(int epoll, unsigned milliseconds, int depth) {
  std::ifstream watched("/proc/self/fdinfo/" + std::to_string(epoll));
  for (std::string line; std::getline(watched, line);) {
    if (line.rfind("tfd:", 0) != 0) continue;
    const int file = std::stoi(line.substr(4));
    // Any file but a TCP socket refuses this.
    ::setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    if (depth < deepest) limit_within(file, milliseconds, depth + 1);
  }
}

}  // namespace

void limit_silence(int epoll, std::chrono::milliseconds limit) {
  limit_within(epoll, static_cast<unsigned>(limit.count()), 0);
}

}  // namespace prun::ucx
