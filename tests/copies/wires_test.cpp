// Tests what members of the comm plugin `copies` tell each other, and the page that they share.
#include "wires.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "page.hpp"
#include "prun/error.hpp"
#include "ranks.hpp"

namespace prun::test::wires_test {
namespace {

using Name = std::array<char, 64>;

std::vector<std::string> names_of(const Rank& rank, const copies::Wires& wires) {
  Name mine{};
  wires.name().copy(mine.data(), mine.size() - 1);
  std::vector<Name> all(static_cast<std::size_t>(rank.size));
  SocketExchange exchange(rank.meshes[0], rank.everyone(), rank.number);
  const ExchangeApi api = exchange.api();
  raise(api.all_gather(api.context, &mine, sizeof mine, all.data()));
  std::vector<std::string> names;
  for (const Name& name : all) names.emplace_back(name.data());
  return names;
}

TEST(Wires, BringWhatEachMemberGives) {
  for (const int size : {2, 3, 5})
    expect_ranks(size, [](const Rank& rank) {
      const std::atomic<bool> aborted{false};
      copies::Wires wires(rank.number, rank.size, aborted);
      wires.connect(names_of(rank, wires));
      for (int round = 0; round < 100; ++round) {
        const std::array<int, 30> mine = {rank.number, round};
        std::vector<std::array<int, 30>> all(static_cast<std::size_t>(rank.size));
        wires.all_gather(mine.data(), sizeof mine, all.data());
        for (int i = 0; i < rank.size; ++i)
          require(all[static_cast<std::size_t>(i)] == std::array<int, 30>{i, round}, "what a member gave");
      }
    });
}

TEST(Wires, BringFiles) {
  expect_ranks(3, [](const Rank& rank) {
    const std::atomic<bool> aborted{false};
    copies::Wires wires(rank.number, rank.size, aborted);
    wires.connect(names_of(rank, wires));
    const copies::File mine(::memfd_create("test", MFD_CLOEXEC));
    require(::pwrite(mine.number(), &rank.number, sizeof rank.number, 0) == sizeof rank.number, "a file");
    const std::vector<copies::File> all = wires.all_gather_files(mine.number());
    for (int i = 0, found = -1; i < rank.size; ++i)
      require(i == rank.number || (::pread(all[static_cast<std::size_t>(i)].number(), &found, sizeof found,
                                           0) == sizeof found &&
                                   found == i),
              "a member's file");
  });
}

// One that waits for a member gives up once it is told to, or once that member is gone.
TEST(Wires, NobodyWaitsForEver) {
  const std::vector<Outcome> outcomes = run_ranks(2, [](const Rank& rank) {
    std::atomic<bool> aborted{false};
    copies::Wires wires(rank.number, rank.size, aborted);
    wires.connect(names_of(rank, wires));
    if (rank.number == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      aborted = true;
    });
    const auto problem = [&] {
      int mine = 0, all[2] = {};
      try {
        wires.all_gather(&mine, sizeof mine, all);
      } catch (const Error& error) {
        require(error.code() == ErrorCode::comm_failed, error.what());
        return std::string(error.what());
      }
      return std::string();
    };
    const std::string told = problem();
    other.join();
    aborted = false;
    require(told.find("aborted") != std::string::npos, told);
    const std::string gone = problem();
    require(gone.find("member 1 is gone") != std::string::npos || gone.find("telling") != std::string::npos,
            gone);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.message, "");
}

TEST(SharedPage, IsOneForAllAndLeavesNoName) {
  copies::SharedPage page;
  copies::SharedPage same(page.name());
  page.words().of[3].arrived[2].store(7);
  EXPECT_EQ(same.words().of[3].arrived[2].load(), 7u);
  EXPECT_EQ(same.words().of[2].arrived[3].load(), 0u);
  page.forget_name();
  EXPECT_NE(::access(page.name().c_str(), F_OK), 0);
  EXPECT_THROW(copies::SharedPage(page.name()), Error);
}

}  // namespace
}  // namespace prun::test::wires_test
