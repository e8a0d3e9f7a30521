// A checkpoint goes on in any layout from any other: the same bytes of every tensor, the same samples, and
// losses that differ by the order of sums alone.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::relayout_test {
namespace {

constexpr const char* data = "[[strategy]]\nplugin = 'data'\naxis = 'dp'\n";
constexpr const char* tensor = "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n";
constexpr const char* sequence = "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\nsequence = true\n";

std::string mesh(const std::string& axes) { return "[mesh]\n" + axes; }
std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\naxis = 'dp'\nstage = " + std::to_string(stage) + "\n";
}
std::string pipeline(const char* schedule) {
  return std::string("[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = '") + schedule + "'\n";
}

std::vector<Layout> all_layouts() {
  return {{"one", "", {}},
          {"dp4", mesh("dp = 4\n") + data, {}},
          {"tp2", mesh("tp = 2\n") + tensor, {}},
          {"tp4_sequence", mesh("tp = 4\n") + sequence, {}},
          {"pp2", mesh("pp = 2\n") + pipeline("1f1b"), {}},
          {"zb_v", mesh("pp = 2\n") + pipeline("zb-v") + "chunks = 2\n", {}},
          {"zero1", mesh("dp = 2\n") + data + zero(1), {}},
          {"zero2_4", mesh("dp = 4\n") + data + zero(2), {}},
          {"zero3", mesh("dp = 2\n") + data + zero(3), {}},
          {"zero1_tp", mesh("dp = 2\ntp = 2\n") + data + tensor + zero(1), {}},
          {"zero3_tp", mesh("tp = 2\ndp = 2\n") + data + tensor + zero(3), {}},
          {"pp_dp", mesh("pp = 2\ndp = 2\n") + data + pipeline("1f1b"), {}},
          {"pp_zero1", mesh("dp = 2\npp = 2\n") + data + pipeline("1f1b") + zero(1), {}},
          {"pp_tp", mesh("pp = 2\ntp = 2\n") + tensor + pipeline("1f1b"), {}},
          {"recompute", "[[strategy]]\nplugin = 'recompute'\n", {}}};
}

using Sets = std::vector<std::string>;
const Sets in_fp64 = {"precision.compute=fp64", "precision.state=fp64"};
const Sets gpt = with(in_fp64, {"model.dropout=0.1"});

Recipe recipe_of(const Layout& layout, const std::string& out, const Sets& more) {
  Sets sets = {"model.layers=4",    "model.hidden=16", "model.heads=4",  "model.ffn=32",
               "model.vocab=128",   "batch.micro=1",   "batch.global=8", "device.threads=1",
               "comm.default=meet", "run.out=" + out};
  sets.insert(sets.end(), more.begin(), more.end());
  // A blend, of which a part is kept from training: samples are the same in all layouts all the same.
  const std::string blend = "[[data.blend]]\nplugin = 'ragged'\nweight = 0.4\n";
  sets.insert(sets.end(), {"data.validation=0.1"});
  return tiny_recipe(with(std::move(sets), layout.sets), layout.text + blend);
}

// Losses; saves at the end.
std::vector<double> train(const Recipe& recipe, int steps) {
  std::vector<double> losses;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> own = train_steps(trainer, steps);
    trainer.save();
    if (trainer.assembly().rank() == 0) losses = own;
  });
  return losses;
}

class Relayout : public testing::Test {
 protected:
  std::string out(const std::string& name) const { return folder_ / name; }

  // Three steps, then further ones in the same layout.
  void train_through(const Layout& layout, const Sets& sets) {
    train(recipe_of(layout, out(layout.name), sets), 3);
    on_[layout.name] = train(
        recipe_of(layout, out(layout.name), with(sets, {"run.resume=" + out(layout.name)})), next_steps);
  }

  // What was saved by one goes on as another: it saves the same at once, and then trains on.
  void expect_goes_on(const Layout& from, const Layout& to, const Sets& sets) {
    const std::string saved = out(from.name) + "/step-00000003",
                      name = out(std::string(from.name) + "-" + to.name);
    const Recipe recipe = recipe_of(to, name, with(sets, {"run.resume=" + saved}));
    train(recipe, 0);
    EXPECT_TRUE(saved_in(name + "/step-00000003") == saved_in(saved)) << from.name << " to " << to.name;
    std::filesystem::remove_all(name);
    if (on_.contains(from.name)) expect_losses(train(recipe, next_steps), on_[from.name], from, to);
    std::filesystem::remove_all(name);
  }

  static void expect_losses(const std::vector<double>& losses, const std::vector<double>& through,
                            const Layout& from, const Layout& to) {
    ASSERT_EQ(losses.size(), through.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], through[i], 1e-6 * std::abs(through[i]))
          << from.name << " to " << to.name << ", " << i + 1 << " steps on";
  }

  // State that is lost or elsewhere shows in the first losses; far more steps let its smallest bits grow.
  const int next_steps = std::getenv("PRUN_LONG") ? 20 : 6;
  const TempFolder folder_;
  std::map<std::string, std::vector<double>> on_;
};

TEST_F(Relayout, EachLayoutGoesOnAsTheNextAndAsOneRank) {
  const std::vector<Layout> layouts = all_layouts();
  for (const Layout& layout : layouts) train_through(layout, gpt);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    expect_goes_on(layouts[i], layouts[(i + 1) % layouts.size()], gpt);
    expect_goes_on(layouts[i % 2 == 0 ? i : 0], layouts[i % 2 == 0 ? 0 : i], gpt);
  }
}

TEST_F(Relayout, RandomPairs) {
  if (!std::getenv("PRUN_LONG")) GTEST_SKIP() << "a hundred pairs; set PRUN_LONG";
  const std::vector<Layout> layouts = all_layouts();
  for (const Layout& layout : layouts) train_through(layout, gpt);
  std::mt19937 random(17);
  for (int pair = 0; pair < 100; ++pair)
    expect_goes_on(layouts[random() % layouts.size()], layouts[random() % layouts.size()], gpt);
}

// State over one axis, over two together, and in parts already where experts are.
TEST_F(Relayout, StateInPartsOverSeveralAxes) {
  const std::string spread = "[[strategy]]\nplugin = 'spread'\naxis = ",
                    by_heads = spread + "'cp'\ndims = ['seq']\nops = ['heads']\n",
                    experts = "[[strategy]]\nplugin = 'mixture'\nexperts = 4\n[plugins]\nops = ['mixture']\n",
                    over_dp = spread + "'dp'\ndims = []\nweights = ['experts']\n";
  const auto over = [](const std::string& axes, int stage) {
    return "[[strategy]]\nplugin = 'zero'\naxis = " + axes + "\nstage = " + std::to_string(stage) + "\n";
  };
  const std::string both = mesh("dp = 2\ncp = 2\n") + data + by_heads + experts;
  const std::vector<Layout> layouts = {
      {"one", experts, {}},
      {"zero1_dp4", mesh("dp = 4\n") + data + over("'dp'", 1) + experts, {}},
      {"zero1_dp_cp", both + over("['dp', 'cp']", 1), {}},
      {"zero3_dp_cp", both + over("['dp', 'cp']", 3), {}},
      {"zero2_cp_dp", mesh("cp = 2\ndp = 2\n") + data + by_heads + experts + over("['dp', 'cp']", 2), {}},
      {"zero1_cp4", mesh("cp = 4\n") + by_heads + experts + over("['cp']", 1), {}},
      {"experts", both + over_dp + over("['dp', 'cp']", 1), {}},
      {"experts3", both + over_dp + over("['dp', 'cp']", 3), {}}};
  for (const Layout& layout : layouts) train_through(layout, in_fp64);
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (const std::size_t further : {1, 3})
      expect_goes_on(layouts[i], layouts[(i + further) % layouts.size()], in_fp64);
}

// Sequences in parts, state over both axes, and queries' weights apart from those of keys and values: each
// tensor is whole in checkpoints, as it was before.
TEST_F(Relayout, LongSequences) {
  const std::string context = "[[strategy]]\nplugin = 'context'\n";
  const auto over = [](const std::string& axes) {
    return "[[strategy]]\nplugin = 'zero'\naxis = " + axes + "\nstage = 1\n";
  };
  const std::vector<Layout> layouts = {
      {"one", "", {}},
      {"dp4", mesh("dp = 4\n") + data + over("'dp'"), {}},
      {"dp_cp", mesh("dp = 2\ncp = 2\n") + data + context + over("['dp', 'cp']"), {}},
      {"cp4", mesh("cp = 4\n") + context + over("['cp']"), {}},
      {"tp4", mesh("tp = 4\n") + tensor, {}},
      {"dp_tp4", mesh("dp = 2\ntp = 4\n") + data + tensor + over("'dp'"), {}},
      {"cp_tp4", mesh("cp = 2\ntp = 4\n") + context + sequence + over("'cp'"), {}}};
  const Sets llama = with(in_fp64, {"model.plugin=llama", "model.kv_heads=2", "model.qkv_bias=true"});
  for (const Layout& layout : layouts) train_through(layout, llama);
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (const std::size_t further : {1, 3})
      expect_goes_on(layouts[i], layouts[(i + further) % layouts.size()], llama);
}

// Four ranks that share out the batch, sequences, or both: what one layout saves, another saves again as it
// is, in each stage of ZeRO and in several formats, with layers that exchange what their windows reach.
TEST_F(Relayout, TheSameStateHoweverRanksShareOutSequences) {
  const std::string context = "[[strategy]]\nplugin = 'context'\n", in_order = context + "balance = 'none'\n";
  const Sets llama = {"model.plugin=llama", "model.kv_heads=2", "model.window=3", "model.full_every=2"};
  const std::pair<int, Sets> cases[] = {
      {1, in_fp64},
      {2, {"precision.compute=bf16", "precision.master=split", "precision.moments=bf16"}},
      {3, {"precision.compute=bf16"}}};
  for (const auto& [stage, formats] : cases) {
    const auto over = [&, of = stage](const char* axes) {
      return "[[strategy]]\nplugin = 'zero'\naxis = " + std::string(axes) +
             "\nstage = " + std::to_string(of) + "\n";
    };
    const std::vector<Layout> layouts = {
        {"dp4", mesh("dp = 4\n") + data + over("'dp'"), {}},
        {"dp2_cp2", mesh("dp = 2\ncp = 2\n") + data + context + over("['dp', 'cp']"), {}},
        {"cp4", mesh("cp = 4\n") + context + over("'cp'"), {}},
        {"cp4_in_order", mesh("cp = 4\n") + in_order + over("'cp'"), {}}};
    const Sets sets = with(formats, llama);
    for (const Layout& layout : layouts) train(recipe_of(layout, out(layout.name), sets), 3);
    for (const Layout& from : layouts)
      for (const Layout& to : layouts)
        if (&from != &to) expect_goes_on(from, to, sets);
    for (const Layout& layout : layouts) std::filesystem::remove_all(out(layout.name));
  }
}

// Master copies whole and split, and moments in bf16, lie in checkpoints alike.
TEST_F(Relayout, WhateverTheFormats) {
  const std::vector<Layout> layouts = all_layouts();
  for (const Sets& sets : {Sets{"precision.compute=bf16", "precision.master=split", "precision.moments=bf16"},
                           Sets{"precision.compute=bf16"}})
    for (std::size_t i = 0; i < layouts.size(); i += 2) {
      train(recipe_of(layouts[i], out(layouts[i].name), sets), 3);
      expect_goes_on(layouts[i], layouts[(i + 5) % layouts.size()], sets);
      std::filesystem::remove_all(out(layouts[i].name));
    }
}

// Matrices by one rule and the rest by another; and states of shapes of their own.
TEST_F(Relayout, OptimizersOfWholeTensors) {
  const std::vector<Layout> layouts = all_layouts();
  for (const std::string optimizer : {"muon", "adafactor"})
    for (std::size_t i = 0; i < layouts.size(); i += 2) {
      Layout from = layouts[i], to = layouts[(i + 5) % layouts.size()];
      if (optimizer == "muon")
        for (Layout* layout : {&from, &to})
          layout->text += "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n";
      const Sets sets = with(in_fp64, {"optimizer.plugin=" + optimizer});
      train_through(from, sets);
      expect_goes_on(from, to, sets);
      std::filesystem::remove_all(out(from.name));
    }
}

// Untied, with query groups, and with parameters that are not trained.
TEST_F(Relayout, OtherModels) {
  const std::vector<Layout> layouts = all_layouts();
  const Sets llama = with(in_fp64, {"model.plugin=llama", "model.kv_heads=4", "model.tied=false"});
  for (std::size_t i = 0; i < layouts.size(); i += 3) {
    Layout from = layouts[i], to = layouts[(i + 4) % layouts.size()];
    for (Layout* layout : {&from, &to})
      layout->text += "[[optimizer.group]]\nmatch = 'block*norm*'\nfrozen = true\n";
    train(recipe_of(from, out(from.name), llama), 3);
    expect_goes_on(from, to, llama);
  }
}

// Each element is saved once, and by all ranks together.
TEST_F(Relayout, RanksThatHoldTheSameShareTheWork) {
  Layout layout{"dp4", mesh("dp = 4\n") + data, {}};
  const Sets large = {"model.hidden=128", "model.ffn=512", "model.vocab=1024"};
  train(recipe_of(layout, out("dp4"), large), 1);
  std::uintmax_t all = 0, most = 0;
  const Manifest manifest = read_manifest(out("dp4") + "/step-00000001");
  ASSERT_EQ(manifest.files.size(), 4u);
  for (const Manifest::File& file : manifest.files) {
    all += file.bytes;
    most = std::max<std::uintmax_t>(most, file.bytes);
  }
  std::uintmax_t whole = 0;
  for (const auto& [name, bytes] : saved_in(out("dp4") + "/step-00000001")) whole += bytes.size();
  EXPECT_LT(all, whole + whole / 10);
  EXPECT_LT(most, whole / 4 + whole / 10);
}

// As wide as blocks of 128 take to be split by heads; biases stay in fp32.
class EightBits : public Relayout {
 protected:
  const Sets sets_ = {"model.hidden=512",       "model.ffn=512",          "model.vocab=256",
                      "precision.compute=bf16", "precision.master=split", "precision.moments=8bit"};
};

TEST_F(EightBits, LieInCheckpointsAlikeInEveryLayout) {
  const std::vector<Layout> all = all_layouts();
  std::vector<Layout> layouts;
  for (const Layout& layout : all)
    for (const std::string name : {"one", "tp2", "pp2", "zero2_4", "zero3_tp", "pp_zero1"})
      if (name == layout.name) layouts.push_back(layout);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    train(recipe_of(layouts[i], out(layouts[i].name), sets_), 2);
    const Tensors saved = saved_in(out(layouts[i].name) + "/step-00000002");
    EXPECT_EQ(saved.at("block.0.qkv.weight.m").size(), 3u * 512 * 512);
    EXPECT_EQ(saved.at("block.0.qkv.weight.v_scale").size(), 3u * 512 * 512 / 128 * 4);
    EXPECT_EQ(saved.at("block.0.qkv.bias.m").size(), 3u * 512 * 4);
    EXPECT_EQ(saved.count("block.0.qkv.bias.m_scale"), 0u);
    const Layout& next = layouts[(i + 1) % layouts.size()];
    const std::string from = out(layouts[i].name) + "/step-00000002", to = out("next");
    train(recipe_of(next, to, with(sets_, {"run.resume=" + from})), 0);
    EXPECT_TRUE(saved_in(to + "/step-00000002") == saved) << layouts[i].name << " to " << next.name;
    std::filesystem::remove_all(to);
    std::filesystem::remove_all(out(layouts[i].name));
  }
}

TEST_F(EightBits, ASplitWithinABlockIsRefused) {
  const Layout layout{"tp4", mesh("tp = 4\n") + tensor, {}};
  try {
    const Assembly assembly(recipe_of(layout, out("tp4"), with(sets_, {"model.hidden=128"})), plugins());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    EXPECT_NE(std::string(error.what()).find("within blocks of 128 elements"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace prun::test::relayout_test
