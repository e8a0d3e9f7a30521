#include "cuda/tuned.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/cuda/gemm_fixture.hpp"

namespace {

namespace fs = std::filesystem;
using namespace prun;
using namespace prun::test;
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

TEST(TunedFile, KeepsWhatIsRemembered) {
  const File file;
  TunedAlgorithms first(file.path());
  EXPECT_EQ(first.find("a device, a product"), "");
  first.save();
  EXPECT_FALSE(fs::exists(file.path())) << "nothing to write";
  first.remember("a device, a product", "00ff");
  first.remember("a device, another", "0100");
  first.save();
  const TunedAlgorithms second(file.path());
  EXPECT_EQ(second.find("a device, a product"), "00ff");
  EXPECT_EQ(second.find("a device, another"), "0100");
  EXPECT_EQ(second.find("a device"), "");
  EXPECT_EQ(file.files(), 1) << "no file is left beside it";
}

TEST(TunedFile, WhatSeveralWriteIsJoined) {
  const File file;
  TunedAlgorithms one(file.path()), other(file.path());
  one.remember("one", "1");
  one.save();
  other.remember("other", "2");
  other.save();
  EXPECT_EQ(TunedAlgorithms(file.path()).find("one"), "1");
  EXPECT_EQ(TunedAlgorithms(file.path()).find("other"), "2");
}

TEST(TunedFile, NoDamageIsTakenForAnAlgorithm) {
  const File file;
  TunedAlgorithms written(file.path());
  written.remember("product", "00ff");
  written.save();
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
  tuned.remember("product", "00ff");
  try {
    tuned.save();
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
  first.save();
  TunedAlgorithms second(file.path());
  EXPECT_FALSE(second.settle(gemm(), plans[2], operands, nullptr)) << "another run";
  EXPECT_EQ(plans[1].algorithm(), plans[0].algorithm());
  EXPECT_EQ(plans[2].algorithm(), plans[0].algorithm());
}

}  // namespace
