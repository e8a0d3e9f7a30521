// A small model goes on from its folder on conversations: as transformers computes the loss of what is
// learned, and from a folder to a folder.
#include <gtest/gtest.h>

#include <cmath>

#include "finetune_run.hpp"

namespace prun::test {
namespace {

class Finetune : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("recipe.toml",
                  "[run]\nname = \"chat\"\nsteps = 6\nout = \"" + out("run") + "\"\n[model]\ninit = \"" +
                      folder_of_model + "\"\nseq = 320\n[data]\nplugin = \"chat\"\npath = \"" + chats +
                      "\"\ntokenizer = \"" + folder_of_model +
                      "\"\ntemplate = \"chatml\"\ntoo_long = \"drop\"\nbetween = 703\nmask_documents = true\n"
                      "end_of_text = 703\n[batch]\nglobal = 4\nmicro = 2\n[optimizer]\nplugin = \"adamw\"\n"
                      "lr = 1e-2\n[device]\nplugin = \"cpu\"\n");
  }
  std::string out(const std::string& name) const { return folder_ / name; }
  std::string recipe() const { return folder_ / "recipe.toml"; }

  // The run `name` with these settings.
  std::vector<double> losses(const std::string& name, const std::vector<std::string>& settings) const {
    std::vector<std::string> words = {recipe(), "--set", "run.out=" + out(name)};
    for (const std::string& setting : settings) {
      words.emplace_back("--set");
      words.push_back(setting);
    }
    const Result result = prun(words);
    EXPECT_EQ(result.code, 0) << result.out;
    return losses_of(out(name));
  }

  // As `prun data show` says.
  std::string samples(const std::string& setting) const {
    const Result shown = prun({"data", "show", recipe(), "--text", "--set", setting});
    EXPECT_EQ(shown.code, 0) << shown.out;
    const std::string before = "sample 0 of ";
    const std::size_t at = shown.out.find(before) + before.size();
    return shown.out.substr(at, shown.out.find(':', at) - at);
  }

  TempFolder folder_;
};

// Of each conversation by itself there, of several in a sample here: whether they see each other would show.
TEST_F(Finetune, TheLossIsTransformersWithLabelsOfAnswersAlone) {
  const double expected = std::stod(contents(PRUN_TEST_FIXTURES "/chat/loss"));
  for (const char* pack : {"true", "false"}) {
    const std::string setting = std::string("data.pack=") + pack, all = samples(setting);
    const std::vector<double> found =
        losses(std::string("all-") + pack,
               {setting, "run.steps=1", "optimizer.lr=0", "batch.global=" + all, "batch.micro=" + all});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_NEAR(found[0], expected, 1e-5) << pack;
  }
}

TEST_F(Finetune, GoesOnInTheMiddleOfAnEpochWithTheSameSamples) {
  const std::vector<double> whole = losses("whole", {"run.epochs=2", "run.steps=1000"});
  ASSERT_GT(whole.size(), 6u);
  EXPECT_LT(whole.back(), whole.front() - 0.5);
  const std::string steps = std::to_string(whole.size());
  const std::vector<double> first =
      losses("parts", {"run.steps=3", "run.save_every=3", "optimizer.schedule.steps=" + steps});
  ASSERT_EQ(first.size(), 3u);
  const std::vector<double> both = losses("parts", {"run.steps=" + steps, "run.resume=" + out("parts")});
  EXPECT_EQ(both, whole);
}

TEST_F(Finetune, AnyLayoutTakesTheSameSamples) {
  const std::vector<double> one = losses("one", {});
  std::ofstream(recipe(), std::ios::app)
      << "threads = 1\n[mesh]\ndp = 2\n[[strategy]]\nplugin = \"data\"\naxis = \"dp\"\n";
  const std::vector<double> two = losses("two", {});
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-4) << i;
}

// Losses, norms and weights after some steps on conversations, in fp64, as prun verify compares them.
TEST_F(Finetune, EveryStrategyTrainsLikeOneRank) {
  const std::string data = "[[strategy]]\nplugin = \"data\"\n", heads = "[[strategy]]\nplugin = \"tensor\"\n",
                    stages = "[[strategy]]\nplugin = \"pipeline\"\nschedule = \"1f1b\"\n",
                    parts = "[[strategy]]\nplugin = \"zero\"\nstage = ";
  std::string alone = contents(recipe());
  const std::string start =
      "init = \"" + folder_of_model + "\"\n";  // whose vocabulary no two ranks can share
  alone.replace(
      alone.find(start), start.size(),
      "plugin = \"llama\"\nlayers = 2\nhidden = 32\nheads = 4\nkv_heads = 2\nffn = 64\nvocab = 720\n");
  for (const std::string& layout :
       {"[mesh]\ndp = 2\n" + data + parts + "3\n", "[mesh]\ntp = 2\n" + heads + "sequence = true\n",
        "[mesh]\npp = 2\n" + stages, "[mesh]\ndp = 2\ntp = 2\n" + data + heads + parts + "1\n",
        "[mesh]\npp = 2\ndp = 2\n" + stages + data + parts + "1\n",
        std::string("[mesh]\ncp = 2\n[[strategy]]\nplugin = \"context\"\n"),
        std::string("[[strategy]]\nplugin = \"recompute\"\n")}) {
    const std::string file = folder_.write("laid_out.toml", alone + "threads = 1\n" + layout);
    const Result result = prun({"verify", file});
    EXPECT_EQ(result.code, 0) << layout << result.out;
    EXPECT_NE(result.out.find("\nequal"), std::string::npos) << layout << result.out;
  }
}

TEST_F(Finetune, ShowsWhatIsLearned) {
  const Result shown = prun({"data", "show", recipe(), "--sample", "1"});
  ASSERT_EQ(shown.code, 0) << shown.out;
  EXPECT_NE(shown.out.find("sample 1 of "), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("<|im_start|>assistant\n\xE2\x9F\xA6"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("<|im_end|>\n\xE2\x9F\xA7"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("position    token  learned  text"), std::string::npos) << shown.out;
  EXPECT_EQ(prun({"data", "show", recipe(), "--sample", "100000"}).code, 2);
}

TEST_F(Finetune, SaysWhatIsCutAndLeftOut) {
  const Result cut =
      prun({recipe(), "--set", "run.steps=1", "--set", "data.too_long=cut", "--set", "model.seq=64"});
  ASSERT_EQ(cut.code, 0) << cut.out;
  EXPECT_TRUE(std::regex_search(
      cut.out, std::regex("[0-9]+ conversations were longer than model.seq = 64 and are cut")))
      << cut.out;
  const Result refused = prun(
      {recipe(), "--set", "data.too_long=refuse", "--set", "model.seq=64", "--set", "run.out=" + out("no")});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.out.find("tokens, more than model.seq = 64"), std::string::npos) << refused.out;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// Who checks the recipe opens the data as well, and so does who validates on a share of them.
TEST_F(Finetune, SaysOfEachSetWhatItHoldsOnce) {
  const std::vector<std::string> once = {"--set", "run.steps=1", "--set", "eval.every=1"};
  std::vector<std::string> share = {recipe(), "--set", "data.validation=0.2"}, apart = {};
  share.insert(share.end(), once.begin(), once.end());
  EXPECT_EQ(count(prun(share).out, " conversations of "), 1u);
  const std::string short_chats = PRUN_TEST_FIXTURES "/chat/short.jsonl", text = contents(recipe());
  const std::size_t data = text.find("plugin = \"chat\""), behind = text.find("mask_documents = ");
  std::string other = text.substr(data, behind - data);
  other.replace(other.find(chats), chats.size(), short_chats);
  const std::string both = folder_.write("both.toml", text + "[[validation]]\n" + other);
  apart = {both, "--set", "run.out=" + out("both")};
  apart.insert(apart.end(), once.begin(), once.end());
  const Result ran = prun(apart);
  ASSERT_EQ(ran.code, 0) << ran.out;
  for (const std::string& file : {std::string(chats), short_chats})
    EXPECT_EQ(count(ran.out, " conversations of " + file), 1u) << ran.out;
}

TEST_F(Finetune, ConversationsThatWouldSeeEachOtherAreRefused) {
  const Result joined = prun({"check", recipe(), "--set", "data.mask_documents=false"});
  EXPECT_EQ(joined.code, 2);
  EXPECT_NE(joined.out.find("set data.mask_documents = true and data.end_of_text = 703"), std::string::npos)
      << joined.out;
  const Result other = prun({"check", recipe(), "--set", "data.end_of_text=5"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.out.find("end with the token 703, and data.end_of_text = 5"), std::string::npos)
      << other.out;
  const Result held = prun({recipe(), "--set", "data.between=710", "--set", "data.end_of_text=710"});
  EXPECT_EQ(held.code, 2);
  EXPECT_NE(held.out.find("which stands between conversations"), std::string::npos) << held.out;
}

TEST_F(Finetune, LargeModelsFitTheMachinesThatTheirRecipesName) {
  const std::vector<std::string> one = {"plan",  PRUN_SOURCE_DIR "/configs/finetune-8b.toml",
                                        "--set", "device.plan_gib=79",
                                        "--set", "tier.cpu.plan_gib=160"};
  std::vector<std::string> eight = {"plan",  PRUN_SOURCE_DIR "/configs/finetune-70b.toml",
                                    "--set", "device.plan_gib=79",
                                    "--set", "tier.cpu.plan_gib=1000"};
  eight.insert(eight.end(), {"--set", "device.plan_units=8"});
  const Result small = prun(one);
  if (small.out.find("there is no device plugin 'cuda'") != std::string::npos)
    GTEST_SKIP() << "there is no device cuda";
  EXPECT_EQ(small.code, 0) << small.out;
  const Result large = prun(eight);
  EXPECT_EQ(large.code, 0) << large.out;
  EXPECT_NE(large.out.find("parameters  70.55 G"), std::string::npos) << large.out;
}

TEST_F(Finetune, FromAFolderToAFolderInFourCommands) {
  const Result made = prun({"init", "--from", folder_of_model, "--data", chats, "--template", "chatml",
                            "--out", out("mine.toml")});
  ASSERT_EQ(made.code, 0) << made.out;
  const std::string written = contents(out("mine.toml"));
  EXPECT_NE(written.find("epochs = 2"), std::string::npos) << written;
  for (const char* verb : {"check", "plan"}) {
    const Result asked = prun({verb, out("mine.toml")});
    EXPECT_EQ(asked.code, 0) << asked.out;
  }
  const Result ran = prun({out("mine.toml"), "--set", "run.out=" + out("mine"), "--set", "run.epochs=1"});
  ASSERT_EQ(ran.code, 0) << ran.out;
  const Result text = prun({"generate", out("mine"), "hello", "--chat", "--max-tokens", "4"});
  EXPECT_EQ(text.code, 0) << text.out;
  const Result exported = prun({"export", out("mine"), "--out", out("folder")});
  ASSERT_EQ(exported.code, 0) << exported.out;
  EXPECT_FALSE(contents(out("folder/model.safetensors")).empty());
  EXPECT_NE(exported.out.find("copied tokenizer.json, tokenizer_config.json of "), std::string::npos)
      << exported.out;
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"})
    EXPECT_EQ(contents(out("folder") + name), contents(folder_of_model + name));
  EXPECT_EQ(prun({"init", "--from", folder_of_model, "--out", out("none.toml")}).code, 2);
}

TEST_F(Finetune, AFolderOfConversationsMakesTheRecipeOfTheirFile) {
  const std::string all = contents(chats), folder = out("parts"), file = folder_.write("whole", all);
  const std::size_t half = all.find('\n', all.size() / 2) + 1;
  folder_.write("parts/1.jsonl", all.substr(0, half));
  folder_.write("parts/2.jsonl", all.substr(half));
  const auto made_of = [&](const std::string& data) {
    const Result made = prun(
        {"init", "--from", folder_of_model, "--data", data, "--template", "chatml", "--out", out("it.toml")});
    EXPECT_EQ(made.code, 0) << made.out;
    std::string written = contents(out("it.toml"));
    std::filesystem::remove(out("it.toml"));
    const std::size_t at = written.find(data);
    return at == std::string::npos ? written : written.replace(at, data.size(), "DATA");
  };
  EXPECT_EQ(made_of(folder), made_of(file));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const Result none = prun({"init", "--from", folder_of_model, "--data", folder, "--out", out("none.toml")});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.out.find("nor a folder of that name with files of conversations"), std::string::npos)
      << none.out;
}

TEST_F(Finetune, ARecipeMayTrainAdapters) {
  const Result made = prun({"init", "--from", folder_of_model, "--data", chats, "--template", "chatml",
                            "--adapter", "lora", "--out", out("lora.toml")});
  ASSERT_EQ(made.code, 0) << made.out;
  const std::string written = contents(out("lora.toml"));
  EXPECT_NE(written.find("plugin = \"lora\""), std::string::npos) << written;
  EXPECT_NE(written.find("schedule.warmup = 1 "), std::string::npos) << written;
  const Result planned = prun({"plan", out("lora.toml")});
  EXPECT_EQ(planned.code, 0) << planned.out;
  const auto refused = [&](const std::string& from, const std::string& adapter) {
    return prun({"init", "--from", from, "--data", chats, "--adapter", adapter, "--out", out("none.toml")})
        .out;
  };
  EXPECT_NE(refused("Qwen/Qwen3-0.6B", "lora").find("prun loads nothing from a hub"), std::string::npos);
  EXPECT_NE(refused(folder_of_model, "dora").find("--adapter takes lora, not 'dora'"), std::string::npos);
}

}  // namespace
}  // namespace prun::test
