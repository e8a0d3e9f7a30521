// Tickets between threads, and those that a device writes.
#include "execute/ticket.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace prun::ticket_test {
namespace {

// Two threads hand one plain number back and forth: each waits for the other's ticket before it touches it.
TEST(Ticket, OrdersTwoThreads) {
  constexpr std::uint64_t rounds = 20'000;
  Counter counters[2] = {0, 0};
  Ticket a(counters[0], false), b(counters[1], false);
  std::uint64_t number = 0;
  std::thread second([&] {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      a.await(round);
      if (number % 2 == 1) ++number;
      b.publish(round);
    }
  });
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    if (number % 2 == 0) ++number;
    a.publish(round);
    b.await(round);
  }
  second.join();
  EXPECT_EQ(number, 2 * rounds);
}

TEST(Ticket, WakesEveryWaiterAndLetsALateOneThrough) {
  constexpr std::uint64_t tickets = 2'000;
  Counter counter = 0;
  Ticket ticket(counter, false);
  std::vector<std::uint64_t> log(tickets);
  std::array<std::uint64_t, 4> seen{};
  std::vector<std::thread> hosts;
  for (std::size_t host = 0; host < seen.size(); ++host)
    hosts.emplace_back([&, host] {
      for (std::uint64_t number = host + 1; number <= tickets; number += 2) {
        ticket.await(number);
        seen[host] += log[number - 1] == number;
      }
    });
  for (std::uint64_t number = 1; number <= tickets; ++number) {
    log[number - 1] = number;
    ticket.publish(number);
    if (number % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (std::thread& host : hosts) host.join();
  for (std::size_t host = 0; host < seen.size(); ++host) EXPECT_EQ(seen[host], (tickets - host + 1) / 2);
  ticket.await(1);
}

TEST(Ticket, MayLeap) {
  constexpr std::uint64_t far = std::uint64_t{1} << 40;
  Counter counter = 0;
  Ticket ticket(counter, false);
  std::thread host([&] { ticket.await(far); });
  ticket.publish(1);
  ticket.publish(far + 5);
  host.join();
  EXPECT_TRUE(ticket.reached(far + 5));
  EXPECT_FALSE(ticket.reached(far + 6));
}

// Nobody rings for what a device writes.
TEST(Ticket, OfADeviceIsLookedAtAgainAndAgain) {
  Counter counter = 0;
  Ticket ticket(counter, true);
  std::thread host([&] { ticket.await(3); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  counter.store(3);
  host.join();
  EXPECT_TRUE(ticket.reached(3));
}

TEST(Ticket, GivenUpLetsEverybodyGo) {
  Counter counter = 0;
  Ticket ticket(counter, true);
  std::thread host([&] { ticket.await(3); });
  ticket.give_up();
  host.join();
  EXPECT_EQ(counter.load(), 0u);
}

}  // namespace
}  // namespace prun::ticket_test
