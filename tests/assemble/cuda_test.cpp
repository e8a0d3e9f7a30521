// Plans for the device cuda, made where there is no GPU. Skipped where the plugin is not built.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"

namespace prun::test {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_built("device", "cuda")) GTEST_SKIP() << "there is no device plugin 'cuda'";
  }

  static double bytes_at(int length, bool deterministic) {
    const Assembly assembly(
        tiny_recipe({"device.plugin=cuda", "precision.compute=bf16", "batch.global=1", "batch.micro=1",
                     "model.seq=" + std::to_string(length),
                     std::string("device.deterministic=") + (deterministic ? "true" : "false")}),
        plugins());
    return static_cast<double>(assembly.plan().layout.bytes_in_memory());
  }
};

// Attention whose gradient has the same bits every time may take memory that grows with the square.
TEST_F(Cuda, MemoryGrowsWithTheLengthOfSequences) {
  constexpr int length = 32768;
  EXPECT_LT(bytes_at(2 * length, false), 2.1 * bytes_at(length, false));
  EXPECT_LE(bytes_at(length, false), bytes_at(length, true));
}

}  // namespace
}  // namespace prun::test
