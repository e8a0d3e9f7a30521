// Holds one connection of the rendezvous, in an epoll set. Nothing here blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/durable_file.hpp"

namespace prun {

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Its events carry this id. Throws where the kernel has no room to watch it.
  Connection(int epoll, std::uint64_t id, FileDescriptor socket);

  std::uint64_t id() const { return id_; }
  void rename(std::uint64_t id);
  Clock::time_point since() const { return since_; }

  // Sends bytes; what does not go at once goes with write(), when there is room.
  void send(std::string_view bytes);
  void write();
  // Ends the connection once everything is sent.
  void close_when_sent() { closing_ = true; }

  // Returns what has come, as much of the buffer as there is; it is empty if there is nothing now, or the
  // connection has ended.
  std::string_view read(std::span<char> buffer);

  // Ends the connection, unless it has ended; `how` is for messages about it.
  void end(const char* how = "ended without a word");
  bool ended() const { return how_ != nullptr; }
  const char* how() const { return how_; }

 private:
  void watch(int operation);

  int epoll_;
  std::uint64_t id_;
  FileDescriptor socket_;
  Clock::time_point since_ = Clock::now();
  std::string unsent_;
  bool awaits_room_ = false, closing_ = false;
  const char* how_ = nullptr;
};

}  // namespace prun
