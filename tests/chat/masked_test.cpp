// Training on conversations is held to PyTorch and transformers with labels of -100: the losses of steps,
// those of other conversations afterwards, and the weights that are exported.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.hpp"
#include "finetune_run.hpp"
#include "support/hugging_face.hpp"

namespace prun::test {
namespace {

constexpr double within = 1e-5;

class Masked : public testing::Test {
 protected:
  using Settings = std::vector<std::string>;

  std::string out(const std::string& name) const { return folder_ / name; }
  std::vector<double> expected(const std::string& name) const { return numbers_of<double>(theirs_, name); }

  // It takes conversations in the order of their lines, and leaves out what PyTorch's runs have not.
  std::string recipe() const {
    const std::string data =
        "\ntokenizer = '" + folder_of_model + "'\ntemplate = 'chatml'\nbetween = 703\ntoo_long = 'drop'\n";
    return folder_.write(
        "masked.toml", "[run]\nname = 'masked'\nsteps = 1\n[model]\ninit = '" + folder_of_model +
                           "'\nseq = 320\n[data]\nplugin = 'chat'\npath = '" + chats + "'" + data +
                           "mask_documents = true\nend_of_text = 703\nshuffle = false\n[[validation]]\n"
                           "plugin = 'chat'\npath = '" PRUN_TEST_FIXTURES "/chat/short.jsonl'\npack = false" +
                           data +
                           "[batch]\nglobal = 4\nmicro = 2\n[optimizer]\nplugin = 'adamw'\nlr = 1e-2\n"
                           "[device]\nplugin = 'cpu'\n");
  }

  Result prun_with(std::vector<std::string> words, const Settings& settings) const {
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    Result result = prun(words);
    EXPECT_EQ(result.code, 0) << result.out;
    return result;
  }

  void expect_losses(const std::string& run, const std::string& name, Settings settings) const {
    const std::vector<double> wanted = expected(name);
    const std::string steps = std::to_string(wanted.size());
    settings.insert(settings.end(), {"run.out=" + out(run), "run.steps=" + steps, "run.save_every=" + steps});
    prun_with({recipe()}, settings);
    const std::vector<double> found = losses_of(out(run));
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], within) << name << i;
  }

  // The evaluation takes all 48 other conversations.
  double evaluated(const std::string& run) const {
    const Result said =
        prun_with({"eval", out(run), "--json", "--batches", "12"}, {"batch.global=4", "batch.micro=4"});
    const std::size_t begin = said.out.find("{\"eval_loss\"");
    if (begin == std::string::npos) return NAN;
    return parse_json(said.out.substr(begin), "eval").find("eval_loss")->as_double();
  }

  // Samples of all conversations that are trained on.
  std::string samples(const std::string& pack) const {
    const Result shown = prun_with({"data", "show", recipe(), "--text"}, {pack});
    const std::string before = "sample 0 of ";
    const std::size_t at = shown.out.find(before) + before.size();
    return shown.out.substr(at, shown.out.find(':', at) - at);
  }

  const TempFolder folder_;
  const SafetensorsFile theirs_{PRUN_TEST_FIXTURES "/chat/trained.safetensors"};
};

// All conversations at each step, so that packing changes nothing but where they lie.
TEST_F(Masked, LossesOfAdamWAreTheirsPackedOrNot) {
  for (const std::string run : {"true", "false"}) {
    const std::string pack = "data.pack=" + run, all = samples(pack);
    expect_losses(run, "adamw", {pack, "batch.global=" + all, "batch.micro=" + all});
    EXPECT_NEAR(evaluated(run), expected("after_adamw")[0], within) << pack;
  }
}

// Four conversations a step in two microbatches, of which one has more to learn than the other.
TEST_F(Masked, LossesOfSmallBatchesAreTheirs) {
  expect_losses("sgd", "sgd",
                {"data.pack=false", "optimizer.plugin=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.9"});
  EXPECT_NEAR(evaluated("sgd"), expected("after_sgd")[0], within);
}

TEST_F(Masked, AnExportedFineTuneHasTheirWeightsAndItsLossAgain) {
  const std::string all = samples("data.pack=true");
  const Settings whole = {"batch.global=" + all, "batch.micro=" + all};
  prun_with({recipe()}, {"run.out=" + out("start"), "run.save_every=1", "optimizer.lr=0"});
  EXPECT_NEAR(evaluated("start"), expected("before")[0], within);
  expect_losses("run", "adamw", whole);
  prun_with({"export", out("run"), "--out", out("folder")}, {});
  const SafetensorsFile ours(out("folder/model.safetensors"));
  EXPECT_EQ(ours.entries().size() + 5, theirs_.entries().size());
  for (const SafetensorsEntry& entry : ours.entries()) {
    const auto is = numbers_of<float>(ours, entry.name), wanted = numbers_of<float>(theirs_, entry.name);
    ASSERT_EQ(is.size(), wanted.size()) << entry.name;
    for (std::size_t i = 0; i < is.size(); ++i) ASSERT_NEAR(is[i], wanted[i], 1e-4) << entry.name << i;
  }
  prun_with({recipe()},
            {"run.out=" + out("again"), "model.init=" + out("folder"), "run.save_every=1", "optimizer.lr=0"});
  EXPECT_EQ(evaluated("again"), evaluated("run"));
  prun_with({"export", out("again"), "--out", out("back")}, {});
  EXPECT_EQ(contents(out("back/model.safetensors")), contents(out("folder/model.safetensors")));
}

}  // namespace
}  // namespace prun::test
