// Admits ranks to the rendezvous: unknown peers connect to its port and prove that they know the token, by
// which they become ranks. Nothing here blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launch/connection.hpp"
#include "launch/rendezvous_frames.hpp"

namespace prun {

class Reception {
 public:
  using Clock = Connection::Clock;
  // Judges a peer that has proved the token.
  using Judge = std::function<Admission(const Hello&)>;
  // Is called with a peer that is let in, after the verdict was sent.
  using LetIn = std::function<void(int rank, std::unique_ptr<Connection>)>;

  // Ids of unknown peers begin at `first_id`; that of the port is 0.
  Reception(int epoll, int world, std::uint64_t first_id, Judge judge, LetIn let_in);

  // At most world + 16 peers may be without a proof of the token at once; then the oldest of them is dropped.
  // Each has two seconds.
  void listen(FileDescriptor listener, std::string token);

  // Handles the port's events, and those of unknown peers.
  void accept_all();
  void process(std::uint64_t id, bool has_room, bool has_more);
  void expire(Clock::time_point now);
  // Returns when expire() has something to do.
  std::optional<Clock::time_point> deadline() const;

  // A peer that came with another token than the ranks have.
  struct Impostor {
    std::int32_t rank = 0;  // that it says it is
    Clock::time_point since{};
    std::string sentence;
  };
  // Returns the last one, or null.
  const Impostor* impostor() const { return impostor_ ? &*impostor_ : nullptr; }

 private:
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Digest random{};
    std::string hello;
  };

  void greet(FileDescriptor socket);
  void make_room();
  void pause(bool paused);
  void read(Stranger& stranger);
  void take_hello(Stranger& stranger);
  Admission verdict_on(const Hello& hello, const Stranger& stranger);
  void sweep();

  int epoll_;
  std::size_t most_strangers_;
  std::uint64_t next_id_;
  Judge judge_;
  LetIn let_in_;
  FileDescriptor listener_;
  std::string token_;
  std::optional<Impostor> impostor_;
  bool paused_ = false;
  Clock::time_point resume_at_{};
  std::map<std::uint64_t, Stranger> strangers_;  // strangers by age
};

}  // namespace prun
