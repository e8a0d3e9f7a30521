// A member that leaves says so, and how far it had got: a member that is done may go while others are still
// busy with each other, and that is no failure.
#pragma once

#include <vector>

#include "wire.hpp"

namespace prun::ucx {

struct Farewell {
  std::uint32_t collectives = 0;         // counts those the member took part in
  std::uint32_t sent = 0, received = 0;  // count its sends to, and its receives from, the member it tells
  std::uint32_t failed = 0;
};

// Farewells must outlive the wire, or be stopped before.
class Farewells final : private TransferListener {
 public:
  // Listens to all members but this one.
  Farewells(std::int32_t rank, std::int32_t size);
  void listen(Wire& wire);

  bool has_left(std::int32_t member) const { return heard_[static_cast<std::size_t>(member)].done; }
  const Farewell& from(std::int32_t member) const { return heard_[static_cast<std::size_t>(member)].message; }
  // Returns the message that say() sends to this member.
  Farewell& to(std::int32_t member) { return said_[static_cast<std::size_t>(member)].message; }
  // Notifies all members that are still there, then listens no more. The time this takes is bounded.
  void say(Wire& wire);

 private:
  struct Note : Transfer {
    Farewell message;
    bool done = false;
  };
  void on_done(Transfer& transfer, ucs_status_t status) noexcept override;
  static void settle(Wire& wire, const std::vector<Note>& notes);

  std::int32_t rank_;
  std::vector<Note> heard_, said_;
};

}  // namespace prun::ucx
