// Does the few things needed with sockets: addresses, time limits, whole messages.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/durable_file.hpp"

namespace prun {

// ------------------------------------------------------------------- socket

using Deadline = std::chrono::steady_clock::time_point;

void set_nonblocking(int fd);
// Turns off delay, and makes a peer that vanishes be noticed within six to eight seconds.
void tune_tcp(int fd);

// Returns two connected ends, neither below descriptor 3 nor inherited by a program that is started.
std::pair<FileDescriptor, FileDescriptor> connected_pair();

// Listens at this address only. Throws comm_failed naming it.
FileDescriptor listen_at(const std::string& host, int port);
// Makes one attempt; returns nothing when no peer answers before the deadline. Throws bad_input for a host
// without an address.
std::optional<FileDescriptor> connect_to(const std::string& host, int port, Deadline deadline);

// Reads so many bytes from a non-blocking socket; returns nothing when it ends or the deadline passes.
std::optional<std::string> receive(int fd, std::size_t bytes, Deadline deadline);
// Sends all bytes; returns false when the other end is gone or the deadline passes.
bool send_all(int fd, std::string_view bytes, Deadline deadline);

// ------------------------------------------------------------------- limits
// Says which limit of the system an error number refers to.

// Returns a text such as "Too many open files; raise the limit on open files (ulimit -n)".
std::string refusal_text(int error);

}  // namespace prun
