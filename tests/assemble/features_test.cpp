// Features drawn together, whether or not they go together: a recipe has a plan, of training and of what it
// does besides, or is refused by a sentence. PRUN_SEED repeats a drawing; with PRUN_LONG there are 2000.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/drawn_recipe.hpp"
#include "support/layouts.hpp"

namespace prun::test::features_test {
namespace {

using Sets = std::vector<std::string>;

struct Feature {
  Sets sets;
  std::string text = {};
};

std::string strategy(const std::string& plugin, const std::string& lines = {}) {
  return "[[strategy]]\nplugin = '" + plugin + "'\n" + lines;
}

Sets llama(Sets more = {}) {
  more.insert(more.begin(), {"model.plugin=llama", "model.kv_heads=2"});
  return more;
}

Sets experts(Sets more = {}) {
  more.insert(more.begin(), {"model.experts=4", "model.choices=2", "model.expert_ffn=64"});
  return llama(std::move(more));
}

// One of each list is drawn; the first of a list is what a recipe has anyway.
const std::vector<Feature> models = {
    {},
    {{"model.tied=false"}},
    {{"model.dropout=0.1"}},
    {llama()},
    {llama({"model.tied=true", "model.qkv_bias=true"})},
    {llama({"model.window=5", "model.full_every=2"})},
    {llama({"model.mtp_layers=1"})},
    {llama({"model.latent=32", "model.rope_head_dim=8", "model.value_dim=16", "model.family=deepseek2"})},
    {experts()},
    {experts({"model.balance=0.01", "model.router_z=0.001", "model.shared_ffn=64", "model.dense_first=1"})},
    {experts({"model.router=sigmoid", "model.router_bias=true", "model.capacity=1"})},
    {{"model.plugin=bert", "data.mask=0.2", "data.mask_token=60"}},
    {{"model.plugin=t5", "model.head_dim=16", "model.seq=17", "model.inputs=11", "data.spans=0.3",
      "data.span_length=2", "data.span_token=63"}}};

const std::vector<Feature> data_axes = {
    {},
    {{"mesh.dp=2"}, strategy("data")},
    {{"mesh.dp=2"}, strategy("data") + strategy("zero")},
    {{"mesh.dp=2"}, strategy("data") + strategy("zero", "stage = 2\n")},
    {{"mesh.dp=2"}, strategy("data") + strategy("zero", "stage = 3\n")},
    {{"mesh.dp=2"}, strategy("data") + strategy("zero", "stage = 3\nreduce = 'step'\n")}};

const std::vector<Feature> tensor_axes = {
    {},
    {},
    {{"mesh.tp=2"}, strategy("tensor")},
    {{"mesh.tp=2"}, strategy("tensor", "sequence = true\n")},
    {{"mesh.cp=2"}, strategy("context")},
    {{"mesh.cp=2"}, strategy("context", "balance = 'none'\npieces = 2\n")},
    {{"mesh.cp=2"}, strategy("context", "method = 'ulysses'\n")}};

Feature pipeline(const std::string& schedule, const std::string& more = {}) {
  return {{"mesh.pp=2", "model.layers=4"}, strategy("pipeline", "schedule = '" + schedule + "'\n" + more)};
}

const std::vector<Feature> pipelines = {{},
                                        {},
                                        {},
                                        pipeline("1f1b"),
                                        pipeline("gpipe"),
                                        pipeline("zb-h1"),
                                        pipeline("zb-v", "chunks = 2\n"),
                                        pipeline("interleaved", "chunks = 2\n"),
                                        pipeline("2bw"),
                                        pipeline("pipedream")};

const std::vector<Feature> expert_layouts = {{},
                                             {},
                                             {{}, strategy("experts")},
                                             {{}, strategy("experts", "exchange = 'all_to_all'\n")},
                                             {{}, strategy("experts", "axis = 'tp'\n")}};

const std::vector<Feature> batches = {
    {{"batch.micro=2"}},
    {{"batch.micro=4"}},
    {{"batch.micro=1"}},
    {{"batch.micro=2", "batch.order=breadth_first"}},
    {{"batch.micro=2", "batch.interleave=2"}},
    {{"batch.micro=2", "batch.pad=true", "batch.global=7"}},
    {{"batch.micro=2", "batch.ramp.start=4", "batch.ramp.increment=4", "batch.ramp.samples=20"}},
    {{"batch.micro=1", "batch.ramp.sizes=[2, 4]", "batch.ramp.until=[2, 4]"}}};

const std::vector<Feature> formats = {
    {},
    {},
    {{"precision.compute=bf16"}},
    {{"precision.compute=bf16", "precision.master=split", "precision.moments=bf16"}},
    {{"precision.compute=bf16", "precision.state=bf16"}},
    {{"precision.compute=fp64", "precision.state=fp64"}},
    {{"precision.compute=fp16"}},
    {{"precision.compute=fp16", "loss_scale.rule=megatron"}},
    {{"precision.compute=bf16", "model.seq=128"}, strategy("fp8")},
    {{"precision.compute=bf16", "model.seq=128"},
     strategy("fp8", "activations = true\ncache_weights = true\nall_gather_inputs = true\n")}};

const std::vector<Feature> traffic = {{},
                                      {},
                                      {{"precision.reduce=fp64"}},
                                      {{"precision.reduce=bf16"}},
                                      {{"precision.reduce=int8"}},
                                      {{"precision.reduce=int4", "precision.gather=int8"}},
                                      {{"precision.gather=fp8"}},
                                      {{"precision.gather=int8"}},
                                      {{"precision.reduce=1bit", "optimizer.plugin=onebit_adam"}}};

const std::vector<Feature> optimizers = {
    {},
    {},
    {{"precision.moments=8bit"}},
    {{"optimizer.plugin=lion"}},
    {{"optimizer.plugin=sgd", "optimizer.momentum=0.9"}},
    {{"optimizer.plugin=adafactor"}},
    {{"optimizer.plugin=muon"}, "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n"},
    {{}, strategy("average", "decay = 0.9\n")},
    {{"optimizer.clip=0", "precision.moments=8bit"}, strategy("average", "decay = 0.9\n")},
    {{"optimizer.plugin=onebit_adam"}},
    {{"optimizer.clip=0"}, "[[optimizer.group]]\nmatch = '*norm*'\nfrozen = true\n"}};

const std::vector<Feature> memory = {
    {},
    {},
    {{}, strategy("recompute")},
    {{}, strategy("recompute", "mode = 'selective'\nops = ['attention', 'linear']\n")},
    {{}, strategy("offload")},
    {{}, strategy("offload", "update = 'device'\n")},
    {{}, strategy("offload", "gradients = 'host'\nparameters = 'host'\nactivations = 'host'\n")},
    {{"run.keep_gradients=false"}, strategy("offload", "gradients = 'host'\ntile = 'tensor'\n")},
    {{}, strategy("offload", "optimizer = 'device:40, host:60'\nactivations = 'host:50, device:50'\n")}};

const std::vector<Feature> losses = {{},
                                     {},
                                     {{}, strategy("loss", "z = 0.01\nsmoothing = 0.1\n")},
                                     {{}, strategy("lora", "rank = 4\n")},
                                     {{}, strategy("lora", "rank = 4\ndropout = 0.1\n")},
                                     {{"data.mask_documents=true", "data.end_of_text=5"}},
                                     {{"run.loss_by_set=true"}}};

const std::vector<Feature> habits = {
    {},
    {{"eval.every=2"}},
    {{"eval.every=2"}, strategy("average", "decay = 0.9\nevaluate = true\n")},
    {{"eval.every=1", "eval.by_set=true"}},
    {{"run.poison=true"}},
    {{"run.bucket_bytes=0B"}},
    {{"run.on_nonfinite=skip"}}};

Feature joined(const std::vector<Feature>& features) {
  Feature all{
      {"model.hidden=64", "model.ffn=128", "batch.global=8", "device.threads=1", "device.pin=false"},
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n"};
  for (const Feature& one : features) {
    all.sets.insert(all.sets.end(), one.sets.begin(), one.sets.end());
    all.text += one.text;
  }
  return all;
}

// Draws one of each kind. Most kinds keep their first, so that pairs come up that a third would hide.
Feature drawn_features(unsigned seed) {
  std::mt19937 random(seed);
  const unsigned kept = 2 + seed % 3;
  std::vector<Feature> drawn;
  for (const auto* kind : {&models, &data_axes, &tensor_axes, &pipelines, &expert_layouts, &batches, &formats,
                           &traffic, &optimizers, &losses, &memory, &habits})
    drawn.push_back((*kind)[random() % kept > 0 ? 0 : random() % kind->size()]);
  return joined(drawn);
}

std::string text_of(const Feature& features) {
  std::string text = features.text;
  for (const std::string& set : features.sets) text += set + "\n";
  return text;
}

// Plans for each purpose, and returns what refuses that.
std::string refusal(const Feature& features) {
  try {
    const Recipe recipe = tiny_recipe(features.sets, features.text);
    for (const Purpose purpose : purposes_of(recipe)) (void)Assembly(recipe, plugins(), 0, purpose);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what() << "\n" << text_of(features);
    return error.what();
  }
  return "";
}

TEST(Features, TogetherHaveAPlanOrAreRefused) {
  const int draws = std::getenv("PRUN_LONG") ? 2000 : 150;
  int planned = 0;
  for (int i = 0; i < draws; ++i) {
    const unsigned seed = first_seed() + static_cast<unsigned>(i);
    const std::string said = refusal(drawn_features(seed));
    planned += said.empty();
    if (HasNonfatalFailure()) FAIL() << "PRUN_SEED=" << seed;
  }
  std::printf("%d of %d planned\n", planned, draws);
  EXPECT_GT(planned, draws / 3);
}

// Recipes of several ranks train as one rank does. Verification refuses those that one rank cannot stand for.
TEST(Features, TogetherEqualOneRank) {
  const int wanted = std::getenv("PRUN_LONG") ? 500 : 10;
  int compared = 0, refused = 0;
  for (unsigned seed = first_seed(); compared < wanted; ++seed) {
    const Feature features = drawn_features(seed);
    try {
      const Recipe recipe = tiny_recipe(features.sets, features.text);
      if (mesh_of(recipe).world() == 1) continue;
      const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 2);
      EXPECT_TRUE(verdict.equal()) << to_text(verdict);
      ++compared;
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2) << error.what();
      ++refused;
    }
    if (HasNonfatalFailure()) FAIL() << "PRUN_SEED=" << seed << "\n" << text_of(features);
  }
  std::printf("%d equal to one rank, %d refused\n", compared, refused);
}

TEST(Features, AScaleThatOverflowsComparesNothing) {
  const Recipe recipe =
      tiny_recipe({"precision.compute=fp16", "loss_scale.rule=megatron", "batch.micro=2"}, data_parallel(2));
  try {
    (void)verify_layout(recipe, plugins().places(), 2);
    FAIL() << "infinite gradients are not refused";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    EXPECT_NE(std::string(error.what()).find("--set loss_scale.initial="), std::string::npos) << error.what();
  }
}

// ---------------------------------------------------------------- pairs that ended in the plan's own checks

TEST(Features, MomentsIn8BitsAreEvaluatedBeside) {
  EXPECT_EQ(refusal(joined({{{"precision.moments=8bit", "eval.every=2"}}})), "");
  EXPECT_EQ(refusal(joined({{{"precision.moments=8bit", "eval.every=2"}}, data_axes[2]})), "");
}

// The sums over `dp` wait for another over `tp`, and end beside the norms of other segments.
TEST(Features, NarrowGradientsAreSummedOverTwoAxes) {
  const Feature narrow{{"precision.reduce=bf16", "batch.micro=2"}};
  for (const Feature& zero : {data_axes[3], data_axes[4]})
    EXPECT_EQ(refusal(joined({zero, tensor_axes[3], narrow})), "");
}

TEST(Features, StepsThatOverlapHaveOneSize) {
  const Sets other = {"batch.micro=2", "batch.ramp.start=4", "batch.ramp.increment=4",
                      "batch.ramp.samples=20"},
             padded = {"batch.micro=4", "batch.pad=true", "batch.ramp.sizes=[7]", "batch.ramp.until=[2]"};
  EXPECT_NE(
      refusal(joined({pipeline("2bw"), {other}})).find("cannot take steps of several sizes (batch.ramp)"),
      std::string::npos);
  EXPECT_EQ(refusal(joined({pipeline("2bw"), {padded}})), "");
}

TEST(Features, SignsOfMomentaAreOfRanksThatShareTheBatch) {
  const Feature signs{{"precision.reduce=1bit", "optimizer.plugin=onebit_adam", "batch.micro=2"}};
  EXPECT_EQ(refusal(joined({{experts()}, data_axes[1], expert_layouts[2], signs})), "");
  const std::string said = refusal(joined({{{"model.hidden=256", "model.ffn=256"}},
                                           {{"mesh.tp=2"}, strategy("tensor", "sequence = true\n")},
                                           signs}));
  EXPECT_NE(
      said.find("a rank without others to share the batch with has the gradients of several microbatches"),
      std::string::npos)
      << said;
  EXPECT_NE(said.find("let a step have one microbatch"), std::string::npos) << said;
}

}  // namespace
}  // namespace prun::test::features_test
