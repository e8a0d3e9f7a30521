#include "cuda/tuned.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/cuda/gemm_fixture.hpp"

namespace prun::test::tuned_test {
namespace {

namespace fs = std::filesystem;
using cuda::TunedAlgorithms;

class File {
 public:
  File() : folder_(fs::temp_directory_path() / ("prun-tuned-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~File() { fs::remove_all(folder_); }
  std::string path() const { return folder_ / "algorithms"; }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

 private:
  fs::path folder_;
};

bool is_known(const std::string& algorithm) { return !algorithm.empty(); }

// What is found for a key, where tuning would find `otherwise`.
std::string settle(TunedAlgorithms& tuned, const std::string& key, const std::string& otherwise) {
  tuned.settle(key, is_known, [&] { return otherwise; });
  return tuned.find(key);
}

TEST(TunedFile, KeepsWhatWasFound) {
  const File file;
  TunedAlgorithms first(file.path());
  EXPECT_EQ(first.find("a device, a product"), "");
  EXPECT_FALSE(fs::exists(file.path())) << "nothing to write";
  EXPECT_EQ(settle(first, "a device, a product", "00ff"), "00ff");
  EXPECT_EQ(settle(first, "a device, another", "0100"), "0100");
  EXPECT_EQ(settle(first, "a device, another", "0101"), "0100") << "tuned again";
  const TunedAlgorithms second(file.path());
  EXPECT_EQ(second.find("a device, a product"), "00ff");
  EXPECT_EQ(second.find("a device, another"), "0100");
  EXPECT_EQ(second.find("a device"), "");
  EXPECT_EQ(file.files(), 2) << "it and its lock, and nothing left beside them";
}

TEST(TunedFile, WhatAnEarlierRunChoseComesFirst) {
  const File file;
  TunedAlgorithms earlier("");
  EXPECT_EQ(settle(earlier, "product", "old"), "old");
  EXPECT_EQ(settle(earlier, "other", "older"), "older");
  TunedAlgorithms known(file.path());
  settle(known, "product", "new");
  TunedAlgorithms resumed(file.path());
  resumed.prefer(earlier.chosen() + "damaged\tline\t0\n");
  EXPECT_EQ(settle(resumed, "product", "today's"), "old");
  EXPECT_EQ(settle(resumed, "third", "today's"), "today's");
  EXPECT_EQ(resumed.find("damaged"), "");
  EXPECT_EQ(TunedAlgorithms(file.path()).find("product"), "new") << "the file is other runs' too";
  TunedAlgorithms again("");
  again.prefer(resumed.chosen());
  EXPECT_EQ(again.find("product"), "old");
  EXPECT_EQ(again.find("other"), "") << "nobody asked for it in that run";
  EXPECT_EQ(again.find("third"), "today's");
}

TEST(TunedFile, WhatSeveralWriteIsJoined) {
  const File file;
  TunedAlgorithms one(file.path()), other(file.path());
  settle(one, "one", "1");
  settle(other, "other", "2");
  EXPECT_EQ(TunedAlgorithms(file.path()).find("one"), "1");
  EXPECT_EQ(TunedAlgorithms(file.path()).find("other"), "2");
}

TEST(TunedFile, WhatAnotherHasFoundSinceIsTaken) {
  const File file;
  TunedAlgorithms one(file.path()), other(file.path());
  EXPECT_EQ(settle(one, "product", "1"), "1");
  EXPECT_EQ(settle(other, "product", "2"), "1");
}

TEST(TunedFile, WhatCannotBeUsedIsTunedAnew) {
  const File file;
  TunedAlgorithms tuned(file.path());
  settle(tuned, "product", "of another library");
  EXPECT_TRUE(tuned.settle(
      "product", [](const std::string& known) { return known == "mine"; }, [] { return "mine"; }));
  EXPECT_EQ(TunedAlgorithms(file.path()).find("product"), "mine");
}

// Ranks that come to the same products at the same time: each is tuned by one of them.
TEST(TunedFile, RanksTuneOneAfterTheOtherAndAgree) {
  constexpr int ranks = 6, products = 5;
  const File file;
  std::atomic<int> tuning = 0, tuned = 0, together = 0;
  std::vector<std::vector<std::string>> found(ranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        TunedAlgorithms own(file.path());
        for (int product = 0; product < products; ++product) {
          const std::string key = "product " + std::to_string(product);
          own.settle(key, is_known, [&] {
            together += ++tuning > 1;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            --tuning;
            ++tuned;
            return "by rank " + std::to_string(rank);
          });
          found[static_cast<std::size_t>(rank)].push_back(own.find(key));
        }
      });
  }
  EXPECT_EQ(together, 0);
  EXPECT_EQ(tuned, products);
  for (const std::vector<std::string>& own : found) EXPECT_EQ(own, found[0]);
}

TEST(TunedFile, NoDamageIsTakenForAnAlgorithm) {
  const File file;
  TunedAlgorithms written(file.path());
  settle(written, "product", "00ff");
  const std::string good = file.text();
  for (std::size_t i = 0; i + 1 < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    std::ofstream(file.path()) << bad;
    EXPECT_EQ(TunedAlgorithms(file.path()).find("product"), "") << bad;
    std::ofstream(file.path()) << good.substr(0, i);
    EXPECT_EQ(TunedAlgorithms(file.path()).find("product"), "") << good.substr(0, i);
  }
  std::ofstream(file.path()) << "\t\nno tab\n\n" << good;
  EXPECT_EQ(TunedAlgorithms(file.path()).find("product"), "00ff") << "behind lines that say nothing";
}

TEST(TunedFile, AFolderThatIsNotThereIsNamed) {
  TunedAlgorithms tuned("/nowhere/at/all/algorithms");
  try {
    settle(tuned, "product", "00ff");
    ADD_FAILURE() << "written";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/nowhere/at/all/algorithms cannot be written");
  }
}

using Tuned = GemmTest;

// Once on this machine: the second process finds what the first one timed.
TEST_F(Tuned, AProductIsTunedOnce) {
  const File file;
  const Product product = {.m = 128, .n = 256, .k = 512};
  const OnDevice a(random_value(DType::bf16, {128, 512}, 1)), b(random_value(DType::bf16, {512, 256}, 2));
  OnDevice d(DType::bf16, {128, 256});
  const cuda::GemmOperands operands = {a.as<void>(), b.as<void>(), nullptr,
                                       nullptr,      d.as<void>(), workspace()};
  cuda::GemmPlan plans[] = {gemm().prepare(product), gemm().prepare(product), gemm().prepare(product)};
  TunedAlgorithms first(file.path());
  EXPECT_TRUE(first.settle(gemm(), plans[0], operands, nullptr));
  EXPECT_FALSE(first.settle(gemm(), plans[1], operands, nullptr)) << "another layer";
  TunedAlgorithms second(file.path());
  EXPECT_FALSE(second.settle(gemm(), plans[2], operands, nullptr)) << "another run";
  EXPECT_EQ(plans[1].algorithm(), plans[0].algorithm());
  EXPECT_EQ(plans[2].algorithm(), plans[0].algorithm());
}

}  // namespace
}  // namespace prun::test::tuned_test
