// Where rounding is all that a tensor's gradient is, layouts are compared by what rounding may be.
#include <gtest/gtest.h>

#include <cmath>

#include "inspect/one_rank.hpp"
#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/token_file.hpp"

namespace prun::test::rounding_test {
namespace {

using Sets = std::vector<std::string>;

constexpr const char* tensor_parallel = "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\n";

// Of tokens that are all alike: so are values, and scores have no gradient, nor have the gains of queries
// and keys.
Recipe of_equal_tokens(const std::string& precision) {
  const std::string tokens =
      write_tokens(temporary_folder() / "equal.bin", std::vector<std::int32_t>(2000, 7)).string();
  return tiny_recipe({"model.plugin=llama", "model.family=qwen3", "model.kv_heads=2", "model.ffn=32",
                      "model.seq=8", "data.plugin=tokens", "data.path=" + tokens, "device.threads=1",
                      "device.pin=false", "precision.compute=" + precision,
                      "precision.state=" + std::string(precision == "fp64" ? "fp64" : "fp32")},
                     tensor_parallel);
}

double part_of(const Sets& sets, std::optional<double> bound = {}) {
  return least_of_all_gradients(tiny_recipe(sets), {.steps = 1, .bound = bound, .exact = {}});
}

TEST(Rounding, OfAllIsWhatTheBoundIsReachedBy) {
  EXPECT_EQ(part_of({"precision.compute=fp64", "precision.state=fp64"}), std::ldexp(1.0, -53) / 1e-9);
  EXPECT_EQ(part_of({"precision.compute=fp32"}), std::ldexp(1.0, -24) / 1e-5);
  EXPECT_EQ(part_of({"precision.compute=bf16"}), std::ldexp(1.0, -8) / 2e-2);
  EXPECT_EQ(part_of({"precision.compute=fp16"}), std::ldexp(1.0, -11) / 2e-2);
}

TEST(Rounding, IsThatOfTheCoarsestFormatOfGradients) {
  EXPECT_EQ(part_of({"precision.compute=fp32", "precision.reduce=bf16"}), std::ldexp(1.0, -8) / 2e-2);
  EXPECT_EQ(part_of({"precision.compute=fp32", "precision.gradient=bf16"}), std::ldexp(1.0, -8) / 2e-2);
}

TEST(Rounding, IsByTheBoundThatIsAskedForAndAtMostAll) {
  EXPECT_EQ(part_of({"precision.compute=fp32"}, 1e-3), std::ldexp(1.0, -24) / 1e-3);
  EXPECT_EQ(part_of({"precision.compute=fp32"}, 1e-9), 1.0);
  EXPECT_EQ(part_of({"precision.compute=fp32"}, 0.0), 1.0);
}

TEST(Rounding, IsNoDifferenceWhereAGradientIsNothingElse) {
  for (const char* precision : {"fp64", "fp32", "bf16"}) {
    const LayoutVerdict verdict = verify_layout(of_equal_tokens(precision), plugins().places(), 1);
    EXPECT_TRUE(verdict.equal()) << precision << "\n" << to_text(verdict);
  }
}

// ---------------------------------------------------------------- rounding that grows

// The bias of keys changes no score, and Lion steps along the sign of its gradient as far as elsewhere.
Recipe of_lion() {
  return tiny_recipe(
      {"optimizer.plugin=lion", "optimizer.lr=1e-3", "optimizer.clip=0", "batch.micro=1", "device.threads=1",
       "device.pin=false", "precision.compute=fp64", "precision.state=fp64"},
      tensor_parallel);
}

TEST(Rounding, AnUpdateMayTakeItsSignForADirection) {
  const LayoutVerdict verdict = verify_layout(of_lion(), plugins().places(), 3);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_GT(verdict.parameter.value, 1e-3);
  EXPECT_NE(verdict.parameter.where.find("qkv.bias"), std::string::npos) << verdict.parameter.where;
  EXPECT_EQ(verdict.gradient.allowed, verdict.bound);
}

TEST(Rounding, AMeasuredBoundGivesWayToTheOneThatIsAskedFor) {
  const LayoutVerdict verdict =
      verify_layout(of_lion(), plugins().places(), {.steps = 3, .bound = 1e-9, .exact = {}});
  EXPECT_FALSE(verdict.equal()) << to_text(verdict);
}

// The difference that is furthest beyond its bound counts.
TEST(Rounding, AMeasuredBoundIsItsTensorsAlone) {
  Difference difference;
  difference.take(1e-6, "a tensor", 1e-9);
  difference.take(1e-3, "a tensor of rounding", 1e-2);
  EXPECT_FALSE(difference.is_allowed());
  EXPECT_EQ(difference.where, "a tensor");
  difference.take(INFINITY, "one that is not finite", INFINITY);
  EXPECT_FALSE(difference.is_allowed());
}

// ---------------------------------------------------------------- what is compared with

TEST(OneRank, HasEverythingInItsDevicesMemoryAndExchangesNothing) {
  const Recipe recipe =
      tiny_recipe({"batch.micro=2"}, data_parallel(2) + drives_alone(temporary_folder().string()) +
                                         "[[strategy]]\nplugin = 'recompute'\n");
  EXPECT_GT(Assembly(recipe, plugins()).devices().size(), 1U);
  const Recipe single = in_device_memory(one_rank_equivalent(recipe, 4), plugins());
  const Assembly alone(single, plugins());
  EXPECT_EQ(alone.devices().size(), 1U);
  for (Id id = 0; id < alone.program().value_count(); ++id)
    EXPECT_FALSE(alone.program().value(id).place && alone.program().value(id).role == Role::state);
  for (const QueueInfo& queue : alone.plan().queues) EXPECT_FALSE(queue.communicates()) << queue.name;
  ASSERT_EQ(single.strategies().size(), 2U);  // what is computed again stays
  EXPECT_EQ(single.strategies()[1].plugin(), "recompute");
  EXPECT_EQ(single.text("data.path"), recipe.text("data.path"));
}

}  // namespace
}  // namespace prun::test::rounding_test
