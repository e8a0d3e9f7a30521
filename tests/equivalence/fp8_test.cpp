// Products in fp8: ranks round in the places where one rank does, or the layout is refused.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "program/fp8_products.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test {
namespace {

struct Layout {
  const char* name;
  std::string text;  // mesh and strategies
  std::vector<std::string> sets;
  friend std::ostream& operator<<(std::ostream& out, const Layout& l) { return out << l.name; }
};

// Widths of which two ranks have whole blocks each.
Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"model.hidden=256",       "model.heads=2",          "model.ffn=256",
                                  "model.seq=128",          "batch.micro=1",          "batch.global=4",
                                  "optimizer.clip=1",       "precision.compute=fp64", "precision.state=fp64",
                                  "precision.products=fp8", "device.pin=false",       "device.threads=1"};
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, text);
}

std::string axis(const std::string& name, const std::string& plugin, const std::string& options = "") {
  return "[mesh]\n" + name + " = 2\n[[strategy]]\nplugin = '" + plugin + "'\n" + options;
}

class Fp8 : public testing::TestWithParam<Layout> {};

TEST_P(Fp8, LayoutsEqualOneRank) {
  const LayoutVerdict verdict =
      verify_layout(recipe_of(GetParam().text, GetParam().sets), plugins().places(), 3);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

const std::string zero3 = "[[strategy]]\nplugin = 'zero'\nstage = 3\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Fp8,
    testing::Values(
        Layout{"data", axis("dp", "data"), {}}, Layout{"zero3", axis("dp", "data") + zero3, {}},
        Layout{"tensor", axis("tp", "tensor"), {}},
        Layout{"tensor_sequence", axis("tp", "tensor", "sequence = true\n"), {}},
        Layout{"llama", axis("tp", "tensor"), {"model.plugin=llama", "model.kv_heads=2"}},
        Layout{"context", axis("cp", "context"), {"model.seq=512", "batch.global=2"}},
        Layout{"pipeline", axis("pp", "pipeline", "schedule = 'zb-h1'\n"), {}},
        Layout{"ends_in_compute",
               axis("pp", "pipeline", "schedule = 'zb-h1'\n"),
               {"model.layers=4", "precision.first_in_compute=1", "precision.last_in_compute=1"}},
        Layout{"recompute", axis("dp", "data") + "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n", {}},
        Layout{"offload",
               axis("dp", "data") + "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nparameters = "
                                    "'host'\n",
               {}},
        Layout{"adapters", axis("dp", "data") + "[[strategy]]\nplugin = 'lora'\nrank = 4\n", {}}),
    [](const auto& layout) { return std::string(layout.param.name); });

TEST(Fp8Run, LossIsNearTheOneWithout) {
  const auto loss = [](const std::string& products) {
    return run_ranks(recipe_of("", {"precision.products=" + products}), 3).front()[2];
  };
  const double exact = loss("compute"), rounded = loss("fp8");
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.01 * exact);
}

// Each would have other blocks than one rank has.
TEST(Fp8Run, PartsOfBlocksAreRefused) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& sets) -> std::string {
    try {
      run_ranks(recipe_of(text, sets), 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string tensor = refused(axis("tp", "tensor"), {"model.hidden=128"});
  EXPECT_NE(tensor.find("precision.products is \"fp8\""), std::string::npos) << tensor;
  EXPECT_NE(tensor.find("let fewer ranks split it"), std::string::npos) << tensor;
  const std::string context = refused(axis("cp", "context"), {"model.seq=256"});
  EXPECT_NE(context.find("in chunks of 64 positions"), std::string::npos) << context;
  const std::string nothing = refused("", {"model.seq=96"});
  EXPECT_NE(nothing.find("no product of the model comes in blocks of 128"), std::string::npos) << nothing;
}

TEST(Fp8Run, ResumesWithTheSameBits) {
  const std::string out = (temporary_folder() / "fp8-resume").string();
  const std::vector<std::string> sets = {"precision.compute=bf16", "precision.state=fp32", "run.out=" + out};
  const Recipe recipe = recipe_of(axis("dp", "data"), sets);
  std::vector<double> through, resumed;
  const auto steps = [](const Recipe& of, int before, int after, std::vector<double>* kept) {
    run_local_ranks(of, plugins().places(), [&](Trainer& trainer) {
      train_steps(trainer, before);
      const std::vector<double> losses = train_steps(trainer, after);
      if (kept == nullptr)
        trainer.save();
      else if (trainer.assembly().rank() == 0)
        *kept = losses;
    });
  };
  steps(recipe, 2, 2, &through);
  steps(recipe, 2, 0, nullptr);
  steps(recipe.with("run.resume", out), 0, 2, &resumed);
  EXPECT_EQ(resumed, through);
}

// Of the products of a block, all but adapters'.
TEST(Fp8Run, ThePlanSaysWhichShareOfProducts) {
  const auto share = [](const std::string& text) {
    return share_in_fp8(Assembly(recipe_of(text, {}), plugins()).program());
  };
  EXPECT_EQ(share(""), 1);
  const double adapted = share("[[strategy]]\nplugin = 'lora'\nrank = 4\n");
  EXPECT_GT(adapted, 0.9);
  EXPECT_LT(adapted, 1);
}

std::string refusal(const std::vector<std::string>& sets) {
  try {
    run_ranks(recipe_of("", sets), 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Fp8Run, FirstAndLastLayersStayInCompute) {
  const std::vector<std::string> ends = {"model.layers=4", "precision.first_in_compute=1",
                                         "precision.last_in_compute=2"};
  const auto assembly = [](const std::vector<std::string>& sets) {
    return Assembly(recipe_of("", sets), plugins());
  };
  EXPECT_EQ(share_in_fp8(assembly(ends).program()), 0.25);
  EXPECT_EQ(assembly({"model.layers=4"}).plan().layout.bytes_in_memory(),
            assembly(ends).plan().layout.bytes_in_memory());
  const auto loss = [](std::vector<std::string> sets) {
    sets.emplace_back("model.layers=4");
    return run_ranks(recipe_of("", sets), 2).front()[1];
  };
  const double some = loss({ends[1], ends[2]});
  EXPECT_NE(some, loss({}));
  EXPECT_NE(some, loss({"precision.products=compute"}));
}

TEST(Fp8Run, LayersInComputeThatLeaveNoneAreRefused) {
  const std::string none = refusal({"precision.first_in_compute=1", "precision.last_in_compute=1"});
  EXPECT_NE(none.find("precision.first_in_compute = 1 and last_in_compute = 1 leave none of 2 layers"),
            std::string::npos)
      << none;
  const std::string without = refusal({"precision.first_in_compute=1", "precision.products=compute"});
  EXPECT_NE(
      without.find("precision.first_in_compute says which layers do not multiply in fp8, and none does"),
      std::string::npos)
      << without;
}

}  // namespace
}  // namespace prun::test
