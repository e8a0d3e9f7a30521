// Rules of whole tensors: every layout updates as one rank does, and goes on as it would have.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::whole_updates_test {
namespace {

const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                  pipeline = "[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n";

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}
std::string mesh(const std::string& axes) { return "[mesh]\n" + axes + "\n"; }

const std::vector<Layout> all_layouts = {
    {"data", mesh("dp = 2") + data, {}},
    {"tensor", mesh("tp = 2") + tensor, {}},
    {"sequence", mesh("tp = 2") + tensor + "sequence = true\n", {}},
    {"pipeline", mesh("pp = 2") + pipeline, {}},
    {"zero1", mesh("dp = 2") + data + zero(1), {}},
    {"zero2", mesh("dp = 2") + data + zero(2), {}},
    {"zero3", mesh("dp = 3") + data + zero(3), {"batch.pad=true"}},
    {"zero3_step", mesh("dp = 2") + data + zero(3) + "reduce = 'step'\n", {}},
    {"zero1_tensor", mesh("dp = 2\ntp = 2") + data + tensor + zero(1), {}},
    {"zero3_tensor", mesh("dp = 2\ntp = 2") + data + tensor + zero(3), {}},
    {"zero2_pipeline", mesh("pp = 2\ndp = 2") + data + pipeline + zero(1), {}},
    {"offload_here", updated_here, {}},
    {"offload_zero", mesh("dp = 2") + data + zero(1) + updated_here, {}},
    {"offload_host", offloaded(), {}},
    {"offload_all", offloaded(true, true, true), {"batch.micro=8"}},
    {"offload_tiles", offloaded() + by_tensor, {}}};

Recipe recipe_of(const std::string& optimizer, const std::string& model, const Layout& layout) {
  std::vector<std::string> sets = {
      "model.plugin=" + model, "model.layers=4",     "model.hidden=16",
      "model.heads=4",         "model.ffn=32",       "model.seq=8",
      "batch.micro=1",         "batch.global=8",     "device.pin=false",
      "device.threads=1",      "run.poison=true",    "precision.compute=fp64",
      "precision.state=fp64",  "optimizer.clip=0.5", "optimizer.plugin=" + optimizer};
  if (model == "llama") sets.push_back("model.kv_heads=2");
  // A table that two stages hold has one update; what gathers for a state of the whole table would edit one
  // of two.
  if (optimizer == "adafactor" && std::string(layout.name) == "zero2_pipeline")
    sets.push_back("model.tied=false");
  const std::string others =
      optimizer == "muon" ? "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n" : "";
  return tiny_recipe(with(std::move(sets), layout.sets), layout.text + others);
}

class WholeUpdates : public testing::TestWithParam<std::tuple<std::string, std::string, Layout>> {};

TEST_P(WholeUpdates, EqualOneRank) {
  const auto& [optimizer, model, layout] = GetParam();
  const LayoutVerdict verdict = verify_layout(recipe_of(optimizer, model, layout), plugins().places(), 6);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

std::string name_of_case(const testing::TestParamInfo<WholeUpdates::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" + std::get<2>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Muon, WholeUpdates,
                         testing::Combine(testing::Values("muon"), testing::Values("gpt", "llama"),
                                          testing::ValuesIn(all_layouts)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Adafactor, WholeUpdates,
                         testing::Combine(testing::Values("adafactor"), testing::Values("gpt"),
                                          testing::ValuesIn(all_layouts)),
                         name_of_case);
// The gradient of a bias of keys is what is rounded of nothing, and so is its sign.
INSTANTIATE_TEST_SUITE_P(Lion, WholeUpdates,
                         testing::Combine(testing::Values("lion"), testing::Values("llama"),
                                          testing::ValuesIn(all_layouts)),
                         name_of_case);

// Experts lie on their numbers where strategy tensor splits widths: sums over all experts' rows have a width
// and no numbers.
TEST(WholeUpdate, SumsOverExpertsAreWholeWhereTheirWeightsAreInParts) {
  for (const char* axis : {"'tp'", "'dp'", "['dp', 'tp']"}) {
    const Layout layout{
        "",
        mesh("dp = 2\ntp = 2") + "[[strategy]]\nplugin = 'experts'\naxis = " + axis + "\n" + data + tensor,
        {"model.experts=8", "model.choices=2", "model.expert_ffn=8"}};
    const LayoutVerdict verdict =
        verify_layout(recipe_of("adafactor", "llama", layout), plugins().places(), 4);
    EXPECT_TRUE(verdict.equal()) << axis << to_text(verdict);
  }
}

std::string refusal(const std::string& optimizer, const std::string& more,
                    std::vector<std::string> sets = {}) {
  try {
    sets.push_back("optimizer.plugin=" + optimizer);
    const Assembly assembly(tiny_recipe(sets, more), plugins());
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "";
}

const std::vector<std::string> in_8_bits = {"precision.compute=bf16", "precision.moments=8bit",
                                            "model.hidden=128", "model.heads=4", "model.ffn=256"};

TEST(MomentsIn8Bits, MayBeAskedForWhereTheOptimizerKeepsNone) {
  EXPECT_EQ(refusal("sgd", "", in_8_bits), "");
}

TEST(MomentsIn8Bits, GoWithWhatKeepsBlocksWhole) {
  for (const std::string& layout : {mesh("dp = 2") + data + zero(1), mesh("tp = 2") + tensor + std::string()})
    EXPECT_EQ(
        refusal("adamw", layout, with(in_8_bits, {"batch.micro=2", "model.hidden=512", "model.ffn=512"})), "")
        << layout;
}

}  // namespace
}  // namespace prun::test::whole_updates_test
