// Formats of what a run keeps: a split master copy has the bits of a whole one, and what rounds by chance
// rounds alike, in every layout and after a checkpoint.
#include <gtest/gtest.h>

#include <mutex>

#include "base/random.hpp"
#include "execute/plan_memory.hpp"
#include "inspect/verify.hpp"
#include "program/passes.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::precision_test {
namespace {

using Sets = std::vector<std::string>;

const std::string data2 = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n";
const std::string tensor2 = "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\n";
const std::string pipeline2 = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n";

std::string zero2(int stage) {
  return data2 + "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}
std::string all4(int stage) {
  return "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n"
         "[[strategy]]\nplugin = 'zero'\nstage = " +
         std::to_string(stage) + "\n";
}

Recipe recipe_of(const std::string& layout, const Sets& sets) {
  Sets all = {"model.hidden=16", "model.heads=4",          "model.ffn=32",      "model.seq=8",
              "batch.micro=1",   "batch.global=4",         "device.threads=1",  "device.pin=false",
              "run.poison=true", "precision.compute=bf16", "optimizer.clip=0.0"};
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, layout);
}

// Bits of what all ranks hold, by tensor and element of the whole model; ranks that hold the same must agree.
struct Bits {
  std::map<std::string, std::map<std::int64_t, std::uint64_t>> of;
  std::vector<double> losses;  // of the first rank

  void take(const std::string& name, const HeldRun& run, const std::vector<std::byte>& bytes) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::uint64_t element = 0;
      std::memcpy(&element, bytes.data() + i * size_of(run.type),
                  static_cast<std::size_t>(size_of(run.type)));
      const auto [at, fresh] = of[name].try_emplace(run.whole + i, element);
      EXPECT_TRUE(fresh || at->second == element) << name << " element " << run.whole + i;
    }
  }
};

void take_all(Trainer& trainer, const std::vector<Kept>& wanted, Bits& bits) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    for (Kept kept : wanted)
      each_held(assembly.program(), assembly.rank(), id, instance, kept, [&](const HeldRun& run) {
        bits.take(assembly.full_name(id, instance) + (kept == Kept::master ? ".master" : ""), run,
                  run.read(trainer.memory()));
      });
  });
}

Bits trained(const Recipe& recipe, int steps, const std::vector<Kept>& wanted, bool save = false) {
  Bits bits;
  std::mutex mutex;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> losses = train_steps(trainer, steps);
    if (save) trainer.save();
    const std::scoped_lock lock(mutex);
    if (trainer.assembly().rank() == 0) bits.losses = losses;
    take_all(trainer, wanted, bits);
  });
  return bits;
}

double share_that_differs(const Bits& a, const Bits& b) {
  double differ = 0, all = 0;
  EXPECT_EQ(a.of.size(), b.of.size());
  for (const auto& [name, elements] : a.of)
    for (const auto& [i, bits] : elements) {
      ++all;
      differ += b.of.at(name).at(i) != bits;
    }
  return differ / all;
}

struct Layout {
  const char* name;
  std::string text;
  friend std::ostream& operator<<(std::ostream& out, const Layout& l) { return out << l.name; }
};

class Precisions : public testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts, Precisions,
                         testing::Values(Layout{"one", ""}, Layout{"data", data2}, Layout{"zero1", zero2(1)},
                                         Layout{"zero2", zero2(2)}, Layout{"zero3", zero2(3)},
                                         Layout{"tensor", tensor2}, Layout{"pipeline", pipeline2},
                                         Layout{"all1", all4(1)}, Layout{"all3", all4(3)}),
                         [](const auto& layout) { return std::string(layout.param.name); });

const Sets split = {"precision.master=split"}, chancy = {"precision.moments=bf16"},
           all_bf16 = {"precision.state=bf16", "precision.gradient=fp32"};

TEST_P(Precisions, ASplitMasterCopyGivesTheBitsOfAWholeOne) {
  for (const char* optimizer : {"optimizer.plugin=adamw", "optimizer.plugin=sgd"}) {
    const std::string clip = "optimizer.clip=1.0";
    const Bits whole = trained(recipe_of(GetParam().text, {optimizer, clip}), 6, {Kept::parameter}),
               parts = trained(recipe_of(GetParam().text, {optimizer, clip, split[0]}), 6, {Kept::parameter});
    EXPECT_EQ(parts.losses, whole.losses);
    EXPECT_EQ(parts.of, whole.of);
  }
}

// Beside the parameters; with stage 3 they are counted with the state.
TEST_P(Precisions, StateTakesTheBytesOfItsFormats) {
  const double own = GetParam().text.find("stage = 3") != std::string::npos ? 2 : 0;
  const auto state = [&](Sets sets) {
    sets.insert(sets.end(), {"run.poison=false", "model.hidden=64", "model.ffn=256"});
    const Assembly assembly(recipe_of(GetParam().text, sets), plugins());
    return static_cast<double>(assembly.plan().layout.memory.bytes[static_cast<std::size_t>(Region::state)]);
  };
  const double whole = state({}), gradients = own > 0 || GetParam().name == std::string("zero2") ? 4 : 0;
  const auto expect = [&](const Sets& sets, double bytes) {
    EXPECT_NEAR(state(sets) / whole, (bytes + own + gradients) / (12 + own + gradients), 0.02) << sets[0];
  };
  expect(split, 10);
  expect(chancy, 8);
  expect(all_bf16, 4);
}

// The same gradients come to the same bits. Layouts that add up in another order have other gradients: there
// no more elements differ than these bring across an edge.
TEST_P(Precisions, ChanceDoesNotDependOnTheLayout) {
  const std::string name = GetParam().name;
  const bool tensor = GetParam().text.find("'tensor'") != std::string::npos, same_order = !tensor;
  const std::string same = name == "one" || name == "pipeline" ? "" : data2;
  for (Sets sets : {all_bf16, chancy}) {
    sets.insert(sets.end(), {"batch.global=2", "model.tied=false"});
    const std::vector<Kept> wanted = {Kept::parameter, Kept::master};
    const Bits mine = trained(recipe_of(GetParam().text, sets), 4, wanted);
    if (same_order) {
      EXPECT_EQ(share_that_differs(mine, trained(recipe_of(same, sets), 4, wanted)), 0);
    }
  }
  const Bits mine = trained(recipe_of(GetParam().text, all_bf16), 1, {Kept::parameter}),
             one = trained(recipe_of("", all_bf16), 1, {Kept::parameter});
  EXPECT_LT(share_that_differs(mine, one), 0.03);
}

// Everything that is updated, by the numbers that its rounding is keyed by: no element twice, none left out.
TEST_P(Precisions, EveryElementHasItsNumber) {
  const Recipe recipe = recipe_of(GetParam().text, chancy);
  std::map<std::uint64_t, std::map<std::int64_t, int>> found;
  std::map<std::uint64_t, std::int64_t> sizes;
  std::int64_t world = 0;
  for (std::int64_t rank = 0; rank < mesh_of(recipe).world(); ++rank, ++world) {
    const Assembly assembly(recipe, plugins(), rank);
    const Program& program = assembly.program();
    for (std::size_t i = 0; i < assembly.plan().instances.size(); ++i) {
      const Instance& instance = assembly.plan().instances[i];
      if (instance.is_stub()) continue;
      for (Id id : program.segment(instance.segment).values)
        if (program.value(id).role == Role::parameter)
          sizes[name_hash(full_name(program, id, instance.layer))] = program.value(id).elements();
      for (Id op : program.segment(instance.segment).ops(FunctionKind::update)) {
        if (program.op(op).kind() != "adamw") continue;
        const auto elements = updated_elements(program, rank, program.op(op).operands[0], instance.layer);
        ASSERT_TRUE(elements);
        for (const TensorElements& part : *elements)
          for (std::int64_t e = 0; e < part.count; ++e) ++found[part.name][part.number(e)];
      }
    }
  }
  ASSERT_EQ(found.size(), sizes.size());
  for (const auto& [name, elements] : found) {
    ASSERT_EQ(static_cast<std::int64_t>(elements.size()), sizes.at(name));
    EXPECT_EQ(elements.begin()->first, 0);
    EXPECT_EQ(elements.rbegin()->first, sizes.at(name) - 1);
    for (const auto& [number, times] : elements) ASSERT_EQ(world % times, 0) << number;
  }
}

// ---------------------------------------------------------------- gradients in bf16

class NarrowGradients : public testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts, NarrowGradients,
                         testing::Values(Layout{"data", data2}, Layout{"zero1", zero2(1)},
                                         Layout{"zero3", zero2(3)}, Layout{"tensor", tensor2},
                                         Layout{"pipeline", pipeline2}, Layout{"all2", all4(2)}),
                         [](const auto& layout) { return std::string(layout.param.name); });

TEST_P(NarrowGradients, EqualThoseOfOneRank) {
  for (const char* model : {"model.plugin=gpt", "model.plugin=llama"}) {
    const Recipe recipe =
        recipe_of(GetParam().text, {"precision.gradient=bf16", "optimizer.clip=1.0", model});
    const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 6);
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  }
}

// What travels narrower is summed over one axis after the other, before it comes back.
TEST(NarrowSums, OverTwoAxesEqualThoseOfOneRank) {
  const std::string data = "[[strategy]]\nplugin = 'data'\n", more = data + "axis = 'b'\n";
  const std::string tensor = "[[strategy]]\nplugin = 'tensor'\nsequence = true\n";
  const auto zero = [](int stage) {
    return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
  };
  const std::string two = "[mesh]\ndp = 2\nb = 2\n" + data + more,
                    cut = "[mesh]\ndp = 2\ntp = 2\n" + data + tensor;
  for (const std::string& text : {two, cut, two + zero(1), two + zero(3), cut + zero(1), cut + zero(2)}) {
    const Recipe recipe = recipe_of(text, {"precision.compute=fp64", "precision.state=fp64",
                                           "precision.reduce=fp32", "model.plugin=llama"});
    const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 3);
    EXPECT_TRUE(verdict.equal()) << text << to_text(verdict);
  }
}

TEST(NarrowGradientsOfOneRank, TrainLikeWideOnesInHalfTheirMemory) {
  const auto losses = [](const char* gradient) {
    return trained(recipe_of("", {std::string("precision.gradient=") + gradient}), 20, {}).losses;
  };
  const std::vector<double> wide = losses("fp32"), narrow = losses("bf16");
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 0.02) << i;
  const auto bytes = [](const char* gradient) {
    const Assembly assembly(recipe_of("", {std::string("precision.gradient=") + gradient, "run.poison=false",
                                           "model.hidden=64", "model.ffn=256"}),
                            plugins());
    return static_cast<double>(
        assembly.plan().layout.memory.bytes[static_cast<std::size_t>(Region::gradient)]);
  };
  EXPECT_NEAR(bytes("bf16") / bytes("fp32"), 0.5, 0.03);
}

// ---------------------------------------------------------------- checkpoints

TEST_P(Precisions, GoOnFromACheckpointWithTheSameBits) {
  for (const Sets& sets : {Sets{"precision.master=split", "precision.moments=bf16"}, all_bf16}) {
    const std::string out = (temporary_folder() / ("precision-" + std::string(GetParam().name))).string();
    Sets with_out = sets;
    with_out.push_back("run.out=" + out);
    const Recipe recipe = recipe_of(GetParam().text, with_out);
    const Bits through = trained(recipe, 5, {Kept::parameter, Kept::master});
    trained(recipe, 3, {}, true);
    const Bits on = trained(recipe.with("run.resume", out), 2, {Kept::parameter, Kept::master});
    EXPECT_EQ(on.of, through.of);
    EXPECT_EQ(on.losses, std::vector<double>(through.losses.begin() + 3, through.losses.end()));
    std::filesystem::remove_all(out);
  }
}

TEST_P(Precisions, ACheckpointOfASplitMasterCopyIsThatOfAWholeOne) {
  const std::string out = (temporary_folder() / ("split-" + std::string(GetParam().name))).string();
  const auto recipe = [&](const char* master, const std::string& folder) {
    return recipe_of(GetParam().text, {"run.out=" + folder, std::string("precision.master=") + master});
  };
  const std::vector<Kept> wanted = {Kept::parameter, Kept::master};
  const Bits through = trained(recipe("fp32", out), 6, wanted);
  for (const char* first : {"fp32", "split"}) {
    const char* second = first == std::string("fp32") ? "split" : "fp32";
    const std::string from = out + first, to = from + "-on";
    trained(recipe(first, from), 2, {}, true);
    trained(recipe(second, to).with("run.resume", from), 2, {}, true);
    const Bits on = trained(recipe("fp32", to + "-end").with("run.resume", to), 2, wanted);
    EXPECT_EQ(on.of, through.of) << first;
    EXPECT_EQ(on.losses, std::vector<double>(through.losses.begin() + 4, through.losses.end())) << first;
  }
}

// As an update that rounded ties to even would have left them.
TEST(PrecisionCheckpoint, AMasterThatIsNotRoundedAsASplitOneIsRefused) {
  const std::string out = (temporary_folder() / "ties").string();
  const Recipe recipe = recipe_of("", {"run.out=" + out});
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    trainer.step();
    const Assembly& assembly = trainer.assembly();
    bool changed = false;
    assembly.each_parameter([&](Id id, std::int32_t instance) {
      each_held(assembly.program(), assembly.rank(), id, instance, Kept::parameter, [&](const HeldRun& run) {
        std::vector<std::byte> bytes = run.read(trainer.memory());
        bytes[6] ^= std::byte{1};
        if (!changed) trainer.memory().write(run.value, run.instance, run.offset, bytes);
        changed = true;
      });
    });
    trainer.save();
  });
  try {
    trained(recipe.with("precision.master", "split").with("run.resume", out), 1, {});
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(".master' does not round to its parameters at element 3"),
              std::string::npos)
        << error.what();
  }
}

TEST(PrecisionCheckpoint, MomentsInAnotherFormatAreRefused) {
  const std::string out = (temporary_folder() / "moments").string();
  const Recipe recipe = recipe_of("", {"run.out=" + out});
  trained(recipe, 1, {}, true);
  try {
    trained(recipe.with("precision.moments", "bf16").with("run.resume", out), 1, {});
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(".m' is F32["), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("the recipe makes it BF16["), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace prun::test::precision_test
