// Gradients that lie elsewhere until their updates alone: the bits are those of gradients that are kept, in
// the memory of a few layers.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::arrived_gradients_test {
namespace {

const std::vector<std::string> dropped = {"run.keep_gradients=false"};
const std::vector<std::string> free_of_the_norm = {"optimizer.clip=0", "batch.order=breadth_first",
                                                   "model.layers=8"};

std::vector<Layout> arriving_layouts() {
  const std::string data = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n",
                    zero = data + "[[strategy]]\nplugin = 'zero'\nstage = ";
  return {{"one", "", {}},
          {"one_microbatch", "", {"batch.order=depth_first", "batch.micro=4", "batch.global=4"}},
          {"tied", "", {"model.tied=true"}},
          {"formats", "", {"precision.compute=bf16", "precision.master=split", "precision.gradient=bf16"}},
          {"data", data, {}},
          {"zero1", zero + "1\n", {}},
          {"zero3", zero + "3\nreduce = 'step'\n", {}},
          {"tensor", "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n", {}}};
}

class ArrivedGradients : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  static Recipe recipe_of(const std::vector<std::string>& more, const std::string& offload) {
    const auto& [layout, target] = GetParam();
    return tiny_recipe(with(with(with(target.sets, free_of_the_norm), layout.sets), more),
                       layout.text + offload);
  }
};

// Where ranks keep parameters whole and state in parts, parameters stay on the device.
TEST_P(ArrivedGradients, HaveTheBitsOfThoseThatAreKept) {
  std::vector<std::string> offloads = {offloaded(false, true)};
  if (std::string_view(std::get<0>(GetParam()).name) != "zero1")
    offloads.insert(offloads.end(),
                    {offloaded(true, true, true) + by_tensor, offloaded(true, true) + by_layer});
  for (const std::string& offload : offloads)
    EXPECT_EQ(run_ranks(recipe_of(dropped, offload), 6), run_ranks(recipe_of({}, offload), 6)) << offload;
}

TEST_P(ArrivedGradients, HaveThemWithStateOnADriveToo) {
  const TempFolder folder;
  const std::string offload = offloaded_to_drives(folder.path(), false, true);
  EXPECT_EQ(run_ranks(recipe_of(dropped, offload), 6), run_ranks(recipe_of({}, offload), 6));
}

std::string name_of_pair(const testing::TestParamInfo<std::tuple<Layout, Target>>& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, ArrivedGradients,
                         testing::Combine(testing::ValuesIn(arriving_layouts()),
                                          testing::ValuesIn(targets())),
                         name_of_pair);

// No more than five of eight layers have gradients there at once: one arrives while two are updated or wait,
// and embedding and head have theirs.
TEST(ArrivedGradientsOfAPlan, TakeTheMemoryOfAFewLayers) {
  const auto memory = [](const std::vector<std::string>& more) {
    return Assembly(tiny_recipe(with(free_of_the_norm, more), offloaded(false, true)), plugins())
        .plan()
        .layout.memory;
  };
  const auto kept = memory({}), few = memory(dropped);
  EXPECT_EQ(few.bytes[Region::gradient], 0);
  EXPECT_EQ(kept.bytes[Region::arrived], 0);
  EXPECT_GT(few.bytes[Region::arrived], 0);
  EXPECT_LT(few.bytes[Region::arrived], kept.bytes[Region::gradient] * 6 / 10);
}

TEST(ArrivedGradientsOfAPlan, AreCheckedWithPoison) {
  const Recipe recipe =
      tiny_recipe(with(with(free_of_the_norm, dropped),
                       {"run.poison=true", "precision.compute=fp64", "precision.state=fp64"}),
                  offloaded(true, true, true));
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 20);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_NE(to_text(verdict).find("gradients of step 1: not compared"), std::string::npos);
}

TEST(ArrivedGradientsOfAPlan, AreRefusedWhereUpdatesWaitForTheNorm) {
  const auto refusal = [](const std::vector<std::string>& sets, const std::string& text) -> std::string {
    try {
      const Assembly made(tiny_recipe(with(free_of_the_norm, with(dropped, sets)), text), plugins());
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  for (const std::string& refused : {refusal({"optimizer.clip=1"}, offloaded(false, true)),
                                     refusal({"run.on_nonfinite=skip"}, offloaded(false, true)),
                                     refusal({}, offloaded()), refusal({}, "")})
    EXPECT_NE(refused.find("cannot free gradients after their updates (run.keep_gradients = false)"),
              std::string::npos)
        << refused;
}

}  // namespace
}  // namespace prun::test::arrived_gradients_test
