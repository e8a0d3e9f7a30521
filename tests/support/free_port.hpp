// Finds a free port for a test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/durable_file.hpp"

namespace prun::test {

namespace detail_of_ports {

// Reserves the port until this process ends: the system keeps a name for as long, and no other process that
// asks here gets the port.
inline bool reserve(int port) {
  static std::vector<FileDescriptor> reserved;
  FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "prun-test-port-%d", port);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) return false;
  reserved.push_back(std::move(socket));
  return true;
}

// Says whether nothing listens there at any address of this machine.
inline bool is_free(int port) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace detail_of_ports

// Returns a port that is this test's alone for as long as its process lives. It is none of those that the
// system gives to a process that connects or asks for any, so no other takes it before a rank listens there.
inline int free_port() {
  constexpr int first = 10'000, last = 32'000;
  static std::mt19937 random{std::random_device{}()};
  for (;;)
    if (const int port = std::uniform_int_distribution(first, last)(random);
        detail_of_ports::is_free(port) && detail_of_ports::reserve(port))
      return port;
}

}  // namespace prun::test
