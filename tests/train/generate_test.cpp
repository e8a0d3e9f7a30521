// Text: the logits of the next token against a forward pass written out here, how a token is drawn of them,
// and that generated text is what an argmax over that forward pass gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "execute/meetings.hpp"
#include "execute/plan_memory.hpp"
#include "generate/checkpoint_use.hpp"
#include "generate/forward_rank.hpp"
#include "generate/generator.hpp"
#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::generate_test {
namespace {

using Numbers = std::vector<double>;

// A GPT in plain loops, over the parameters by their full names.
class PlainGpt {
 public:
  PlainGpt(std::map<std::string, Numbers> parameters, int layers, int heads, int hidden)
      : w_(std::move(parameters)), layers_(layers), heads_(heads), hidden_(hidden) {}

  // Of the token behind these.
  Numbers logits(const std::vector<std::int32_t>& tokens) const {
    std::vector<Numbers> x;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      Numbers row(hidden_);
      for (std::size_t i = 0; i < hidden_; ++i)
        row[i] = of("embedding.token")[static_cast<std::size_t>(tokens[t]) * hidden_ + i] +
                 of("embedding.position")[t * hidden_ + i];
      x.push_back(row);
    }
    for (int layer = 0; layer < layers_; ++layer) block("block." + std::to_string(layer) + ".", x);
    return times("embedding.token", "", norm("head.norm", x.back()));
  }

 private:
  const Numbers& of(const std::string& name) const { return w_.at(name); }

  // weight x + bias
  Numbers times(const std::string& weight, const std::string& bias, const Numbers& x) const {
    const Numbers& w = of(weight);
    Numbers y(w.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = bias.empty() ? 0 : of(bias)[o];
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    }
    return y;
  }

  Numbers norm(const std::string& name, const Numbers& x) const {
    double mean = 0, variance = 0;
    for (double v : x) mean += v / static_cast<double>(x.size());
    for (double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Numbers y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * of(name + ".gain")[i] + of(name + ".bias")[i]);
    return y;
  }

  static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }

  void block(const std::string& p, std::vector<Numbers>& x) const {
    std::vector<Numbers> qkv;
    for (const Numbers& row : x)
      qkv.push_back(times(p + "qkv.weight", p + "qkv.bias", norm(p + "norm1", row)));
    for (std::size_t t = x.size(); t-- > 0;) {
      add(x[t], times(p + "proj.weight", p + "proj.bias", attend(qkv, t)));
      Numbers up = times(p + "up.weight", p + "up.bias", norm(p + "norm2", x[t]));
      for (double& v : up) v = gelu(v);
      add(x[t], times(p + "down.weight", p + "down.bias", up));
    }
  }

  static void add(Numbers& x, const Numbers& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  // Of each head three rows: query, key, value.
  Numbers attend(const std::vector<Numbers>& qkv, std::size_t t) const {
    const std::size_t d = hidden_ / heads_;
    Numbers result;
    for (std::size_t h = 0; h < heads_; ++h) {
      const std::size_t query = h * 3 * d, key = query + d, value = key + d;
      Numbers scores;
      for (std::size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::size_t i = 0; i < d; ++i) score += qkv[t][query + i] * qkv[s][key + i];
        scores.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
      }
      double sum = 0;
      for (double score : scores) sum += score;
      for (std::size_t i = 0; i < d; ++i) {
        double v = 0;
        for (std::size_t s = 0; s <= t; ++s) v += scores[s] / sum * qkv[s][value + i];
        result.push_back(v);
      }
    }
    return result;
  }

  std::map<std::string, Numbers> w_;
  int layers_;
  std::size_t heads_, hidden_;
};

std::map<std::string, Numbers> parameters_by_name(Trainer& trainer) {
  std::map<std::string, Numbers> all;
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    Numbers& numbers = all[assembly.full_name(id, instance)];
    each_held(assembly.program(), assembly.rank(), id, instance, Kept::parameter, [&](const HeldRun& run) {
      const std::vector<std::byte> bytes = run.read(trainer.memory());
      const auto* const values = reinterpret_cast<const double*>(bytes.data());
      numbers.insert(numbers.end(), values, values + run.count);
    });
  });
  return all;
}

std::int32_t argmax(const Numbers& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class Generate : public testing::Test {
 protected:
  Generate()
      : recipe_(tiny_recipe({"precision.compute=fp64", "precision.state=fp64", "optimizer.lr=0.05",
                             "run.out=" + folder_ / "run"})) {
    const Assembly assembly(recipe_, plugins());
    Trainer trainer(assembly, plugins());
    train_steps(trainer, 20);
    trainer.save();
    plain_.emplace(parameters_by_name(trainer), 2, 4, 32);
  }

  const TempFolder folder_;
  const Recipe recipe_;
  std::optional<PlainGpt> plain_;
  const std::vector<std::int32_t> prompt_ = {5, 17, 60, 3, 3, 41};
};

TEST_F(Generate, LogitsAreThoseOfAPlainForwardPass) {
  const ForwardRank rank(one_text(recipe_, plugins()), plugins(), {}, 0, Purpose::generation);
  Generator generator(rank.parts());
  rank.load(generator.memory(), folder_ / "run");
  for (std::size_t length = 1; length <= prompt_.size(); ++length) {
    const std::vector<std::int32_t> text(prompt_.begin(),
                                         prompt_.begin() + static_cast<std::ptrdiff_t>(length));
    const Numbers expected = plain_->logits(text), found = generator.logits(text);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-10) << length << " " << i;
  }
}

// Beyond the model's sequence the last tokens count, as a window.
TEST_F(Generate, GreedyTextIsTheArgmaxOfAPlainForwardPassAgainAndAgain) {
  TextQuestion question;
  question.checkpoint = folder_ / "run";
  question.tokens = prompt_;
  question.most = 24;
  std::vector<std::int32_t> text = prompt_;
  for (std::int64_t i = 0; i < question.most; ++i) {
    const std::size_t window = std::min<std::size_t>(text.size(), 16);
    text.push_back(argmax(plain_->logits({text.end() - static_cast<std::ptrdiff_t>(window), text.end()})));
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt_.size()));
  EXPECT_EQ(text_of_checkpoint(one_text(recipe_, plugins()), plugins(), question, {}), text);
  question.end = text[3];
  const auto first = std::find(text.begin(), text.end(), question.end);
  EXPECT_EQ(text_of_checkpoint(one_text(recipe_, plugins()), plugins(), question, {}),
            std::vector<std::int32_t>(text.begin(), first));
}

TEST_F(Generate, ATokenThatTheModelDoesNotHaveIsRefused) {
  TextQuestion question;
  question.checkpoint = folder_ / "run";
  question.tokens = {5, 64};
  try {
    text_of_checkpoint(one_text(recipe_, plugins()), plugins(), question, {});
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("token 64, outside of the model's 64 tokens"), std::string::npos)
        << error.what();
  }
}

// ---------------------------------------------------------------- position by position

using Text = std::vector<std::int32_t>;

struct Said {
  bool by_position = false;
  std::vector<Numbers> logits;  // of what follows each text
};

// Of the ranks that have the head, which are asked for one text after the other.
Said ask(const Recipe& recipe, const std::filesystem::path& checkpoint, Purpose purpose,
         const std::vector<Text>& texts) {
  const std::int64_t world = mesh_of(recipe).world();
  Meetings meetings;
  std::vector<Said> said(static_cast<std::size_t>(world));
  const auto run = [&](std::int64_t number) {
    PluginHost own(plugins().places());
    own.set_local({static_cast<int>(number), static_cast<int>(world)});
    Membership membership;
    if (world > 1)
      membership.exchange = [&](std::string_view channel, std::span<const int> members,
                                std::string_view mine) {
        return meetings.all_gather(channel, members, static_cast<int>(number), mine);
      };
    const ForwardRank rank(recipe, own, membership, number, purpose);
    Said& mine = said[static_cast<std::size_t>(number)];
    mine.by_position = staged_values(rank.assembly().program()).position != none;
    Generator generator(rank.parts());
    rank.load(generator.memory(), checkpoint);
    for (const Text& text : texts)
      if (const Numbers logits = generator.logits(text); !logits.empty()) mine.logits.push_back(logits);
  };
  {
    std::vector<std::jthread> threads;
    for (std::int64_t rank = 0; rank < world; ++rank) threads.emplace_back(run, rank);
  }
  std::erase_if(said, [](const Said& one) { return one.logits.empty(); });
  for (const Said& one : said) EXPECT_EQ(one.logits, said.front().logits);
  return said.front();
}

class GenerateIn : public testing::TestWithParam<std::tuple<const char*, Layout, Target>> {
 protected:
  Recipe recipe(const std::vector<std::string>& more = {}) const {
    const auto& [model, layout, target] = GetParam();
    std::vector<std::string> sets =
        with({"model.layers=4", "model.seq=80", std::string("model.plugin=") + model}, layout.sets);
    if (model == std::string("llama")) sets.push_back("model.kv_heads=2");
    if (model == std::string("llama")) std::erase(sets, "model.dropout=0.1");
    sets.push_back("model.attention_dropout=0.1");  // text drops nothing
    return unpinned(tiny_recipe(with(with(sets, target.sets), more), layout.text));
  }
};

// Texts that grow, change in their middle, become shorter and fill the whole sequence.
TEST_P(GenerateIn, PositionByPositionIsAsWholeSequencesAre) {
  const TempFolder folder;
  const auto& [model, layout, target] = GetParam();
  std::filesystem::path saved;
  run_local_ranks(recipe({"run.out=" + (folder / "run")}), plugins().places(), [&](Trainer& trainer) {
    train_steps(trainer, 3);
    const std::filesystem::path path = trainer.save();
    if (trainer.assembly().rank() == 0) saved = path;
  });
  const Recipe one = one_text(recipe(), plugins());
  Text full;
  for (std::int32_t i = 0; i < 80; ++i) full.push_back(i * 37 % 64);
  const auto first = [&](std::ptrdiff_t count) { return Text(full.begin(), full.begin() + count); };
  Text other = first(50);
  other[20] = 5;
  const std::vector<Text> texts = {first(3), first(4), first(45), other, first(1), full};
  const Said whole = ask(one, saved, Purpose::windows, texts),
             by = ask(one, saved, Purpose::generation, texts);
  EXPECT_FALSE(whole.by_position);
  EXPECT_EQ(by.by_position, layout.text.find("sequence = true") == std::string::npos);
  ASSERT_EQ(by.logits.size(), texts.size());
  EXPECT_EQ(by.logits, whole.logits);
}

std::string name_of_tested(const testing::TestParamInfo<std::tuple<const char*, Layout, Target>>& tested) {
  const auto& [model, layout, target] = tested.param;
  return std::string(model) + "_" + layout.name + "_" + target.name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, GenerateIn,
                         testing::Combine(testing::Values("gpt", "llama"), testing::ValuesIn(layouts()),
                                          testing::Values(on_cpu())),
                         name_of_tested);
INSTANTIATE_TEST_SUITE_P(Queues, GenerateIn,
                         testing::Combine(testing::Values("llama"), testing::ValuesIn(layouts()),
                                          testing::Values(on_async())),
                         name_of_tested);

// ---------------------------------------------------------------- an encoder and a decoder

// What the encoder sees, and the decoder's text so far.
Text read_by(const Text& given, std::int32_t count, std::int32_t different_at = -1) {
  Text text = given;
  for (std::int32_t i = 0; i < count; ++i) text.push_back(i == different_at ? 5 : (i * 23 + 7) % 64);
  return text;
}

Recipe t5_recipe(const std::vector<std::string>& more = {}, const std::string& text = {}) {
  const std::vector<std::string> t5 = {"model.plugin=t5",    "model.head_dim=8",       "model.buckets=8",
                                       "model.distance=9",   "model.layers=3",         "model.seq=17",
                                       "model.inputs=11",    "model.decoder_layers=2", "data.spans=0.3",
                                       "data.span_length=2", "data.span_token=63"};
  return unpinned(tiny_recipe(with(t5, more), text));
}

class GenerateBehindAnEncoder : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  Recipe recipe(const std::vector<std::string>& more) const {
    const auto& [layout, target] = GetParam();
    return t5_recipe(with(with(layout.sets, target.sets), more), layout.text);
  }
};

// Texts that grow, change in their middle, become shorter, and are of another prompt of that length.
TEST_P(GenerateBehindAnEncoder, PositionByPositionIsAsWholeSequencesAre) {
  const TempFolder folder;
  const auto& [layout, target] = GetParam();
  std::filesystem::path saved;
  run_local_ranks(recipe({"run.out=" + (folder / "run")}), plugins().places(), [&](Trainer& trainer) {
    train_steps(trainer, 3);
    const std::filesystem::path path = trainer.save();
    if (trainer.assembly().rank() == 0) saved = path;
  });
  const bool by_position = layout.text.find("sequence = true") == std::string::npos;
  for (const std::int32_t inputs : {1, 6, 37}) {
    SCOPED_TRACE(inputs);
    constexpr std::int32_t most = 40;
    const Recipe one = one_text(recipe({}), plugins())
                           .with("model.inputs", std::to_string(inputs))
                           .with("model.seq", std::to_string(inputs + most));
    Text given;
    for (std::int32_t i = 0; i < inputs; ++i) given.push_back(i * 37 % 64 + 1);
    Text other = given;
    other.back() = 2;
    const std::vector<Text> texts = {read_by(given, 1),      read_by(given, 2),  read_by(given, 19),
                                     read_by(given, 23, 12), read_by(given, 23), read_by(given, 4),
                                     read_by(other, 4),      read_by(other, 5),  read_by(given, most)};
    const Said whole = ask(one, saved, Purpose::windows, texts),
               by = ask(one, saved, Purpose::generation, texts);
    EXPECT_FALSE(whole.by_position);
    EXPECT_EQ(by.by_position, by_position);
    ASSERT_EQ(by.logits.size(), texts.size());
    EXPECT_EQ(by.logits, whole.logits);
    EXPECT_NE(by.logits[5], by.logits[6]);  // the encoder's text counts
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, GenerateBehindAnEncoder,
                         testing::Combine(testing::ValuesIn(layouts()),
                                          testing::Values(on_cpu(), on_async())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

// Counts the calls that a text's first step has, and those that all of its steps have.
TEST_F(Generate, AnEncoderRunsInTheFirstStepOfATextAlone) {
  const Assembly assembly(one_text(t5_recipe(), plugins()), plugins(), 0, Purpose::generation);
  const Plan& plan = assembly.plan();
  std::map<std::string, std::pair<int, int>> calls;  // by segment: of the first step, and of each
  for (const Call& call : plan.calls)
    if (const PlannedFunction& function = plan.functions[call.function];
        function.kind == FunctionKind::forward) {
      auto& [first, each] = calls[assembly.program().segment(function.segment).name];
      ++(call.to == 0 ? first : each);
      EXPECT_TRUE(call.runs_in(Iteration::beginning));
    }
  const std::map<std::string, std::pair<int, int>> wanted = {
      {"embedding", {1, 1}}, {"encoder", {3, 0}}, {"bridge", {1, 1}}, {"decoder", {2, 4}}, {"head", {0, 1}}};
  EXPECT_EQ(calls, wanted);
}

// The proof replays a text's first step, the others, and another text.
TEST_F(Generate, TheProofFindsWhatAFirstStepDoesNotLeave) {
  const Assembly assembly(one_text(t5_recipe(), plugins()), plugins(), 0, Purpose::generation);
  const auto verdict = [&](const char* segment, auto&& change) -> std::string {
    Plan plan = assembly.plan();
    for (Call& call : plan.calls)
      if (const PlannedFunction& function = plan.functions[call.function];
          function.kind == FunctionKind::forward &&
          assembly.program().segment(function.segment).name == segment)
        change(call);
    try {
      check_plan(assembly.program(), plan);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto only_first = [](Call& call) { call.to = 0; };
  const auto never_first = [](Call& call) {
    if (call.to == 0) call.from = call.to = 1;
  };
  EXPECT_EQ(verdict("encoder", only_first), "");  // as planned
  EXPECT_NE(verdict("bridge", only_first), "");   // what each step hands to the decoder is old
  EXPECT_NE(verdict("decoder", only_first), "");
  EXPECT_NE(verdict("decoder", never_first), "");  // there are no keys and values yet
}

// ---------------------------------------------------------------- states

// Bytes of a program that stay from one position to the next: of attention they grow with the text.
std::int64_t kept_bytes(const Recipe& recipe) {
  const Assembly assembly(one_text(recipe, plugins()), plugins(), 0, Purpose::generation);
  std::int64_t bytes = 0;
  for (Id id = 0; id < assembly.program().value_count(); ++id) {
    const Value& value = assembly.program().value(id);
    if (value.name.starts_with("kept_")) bytes += assembly.program().local_bytes(id);
  }
  return bytes;
}

// A state cannot go back: texts that change or become shorter begin anew. It is as large for any text.
TEST_F(Generate, ByStatesThatDoNotGrowIsAsWholeSequencesAre) {
  const std::vector<std::string> sets = {"model.plugin=llama",      "model.family=qwen3_next",
                                         "model.layers=3",          "model.seq=80",
                                         "model.head_dim=8",        "model.kv_heads=2",
                                         "model.attends_every=2",   "model.delta_key_heads=2",
                                         "model.delta_key_dim=6",   "model.delta_value_heads=4",
                                         "model.delta_value_dim=5", "precision.compute=fp64",
                                         "precision.state=fp64"};
  const TempFolder folder;
  std::filesystem::path saved;
  run_local_ranks(unpinned(tiny_recipe(with(sets, {"run.out=" + (folder / "run")}))), plugins().places(),
                  [&](Trainer& trainer) {
                    train_steps(trainer, 3);
                    saved = trainer.save();
                  });
  Text full;
  for (std::int32_t i = 0; i < 80; ++i) full.push_back(i * 37 % 64);
  const auto first = [&](std::ptrdiff_t count) { return Text(full.begin(), full.begin() + count); };
  Text other = first(50);
  other[20] = 5;
  Text last = other;
  last[49] = 3;
  const std::vector<Text> texts = {first(3), first(4),  first(45), other, last,
                                   last,     first(50), first(1),  full};
  const Recipe one = one_text(unpinned(tiny_recipe(sets)), plugins());
  const Said whole = ask(one, saved, Purpose::windows, texts),
             by = ask(one, saved, Purpose::generation, texts);
  EXPECT_TRUE(by.by_position);
  ASSERT_EQ(by.logits.size(), texts.size());
  for (std::size_t text = 0; text < texts.size(); ++text)
    for (std::size_t i = 0; i < whole.logits[text].size(); ++i)
      EXPECT_NEAR(by.logits[text][i], whole.logits[text][i], 1e-11) << "text " << text;
  const std::vector<std::string> recurrent = with(sets, {"model.attends_every=4"});
  EXPECT_EQ(kept_bytes(tiny_recipe(recurrent)), kept_bytes(tiny_recipe(with(recurrent, {"model.seq=640"}))));
}

// Each of its microbatches is an update, and a text is one of them.
TEST_F(Generate, AScheduleThatUpdatesEachMicrobatchTakesOneText) {
  const auto one = [](const std::string& schedule) {
    return one_text(
        tiny_recipe({"model.layers=2", "batch.micro=1"},
                    "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '" + schedule + "'\n"),
        plugins());
  };
  EXPECT_EQ(one("1f1b").integer("batch.global"), 2);
  EXPECT_EQ(one("pipedream").integer("batch.global"), 1);
  const Assembly assembly(one("pipedream"), plugins(), 0, Purpose::generation);
  EXPECT_NE(staged_values(assembly.program()).position, none);
}

TEST_F(Generate, WhatKeepsNoPositionsIsMadeOfWholeSequences) {
  const auto steps = [](const Recipe& recipe) {
    const Assembly assembly(one_text(recipe, plugins()), plugins(), 0, Purpose::generation);
    return staged_values(assembly.program()).position != none;
  };
  EXPECT_TRUE(steps(tiny_recipe()));
  EXPECT_FALSE(steps(tiny_recipe({"data.mask_documents=true", "data.end_of_text=0"})));
}

// Where nothing is computed again there is nothing for it to find.
TEST_F(Generate, WhatIsForTrainingAloneIsLeftOut) {
  const Recipe recipe =
      tiny_recipe({}, "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['attention']\n");
  EXPECT_NO_THROW(Assembly(recipe, plugins()));
  EXPECT_NO_THROW(Assembly(one_text(recipe, plugins()), plugins(), 0, Purpose::generation));
}

// ---------------------------------------------------------------- sampling

TEST(Sampling, WithoutTemperatureItIsTheLikeliest) {
  const Numbers logits = {0.5, 2, -1, 2};
  EXPECT_EQ(choose_token(logits, {}, 7), 1);
}

TEST(Sampling, TokensComeAsOftenAsTheirShares) {
  const Numbers logits = {std::log(0.5), std::log(0.125), std::log(0.375)};
  std::vector<double> often(3);
  constexpr int draws = 20000;
  for (int position = 0; position < draws; ++position)
    often[static_cast<std::size_t>(choose_token(logits, {1, 1, 3}, position))] += 1.0 / draws;
  EXPECT_NEAR(often[0], 0.5, 0.02);
  EXPECT_NEAR(often[1], 0.125, 0.02);
  EXPECT_NEAR(often[2], 0.375, 0.02);
}

TEST(Sampling, TopPLeavesTheLeastLikelyOut) {
  const Numbers logits = {std::log(0.5), std::log(0.125), std::log(0.375)};
  bool first = false, third = false;
  for (int position = 0; position < 200; ++position) {
    const std::int32_t token = choose_token(logits, {1, 0.8, 3}, position);
    EXPECT_NE(token, 1);
    first |= token == 0;
    third |= token == 2;
    EXPECT_EQ(choose_token(logits, {1, 0.4, 3}, position), 0);
  }
  EXPECT_TRUE(first && third);
}

TEST(Sampling, SeedAndPositionSayWhichOne) {
  const Numbers logits(64, 0.0);
  const auto drawn = [&](std::int64_t seed) {
    std::vector<std::int32_t> tokens;
    for (int position = 0; position < 20; ++position)
      tokens.push_back(choose_token(logits, {1, 1, seed}, position));
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(Sampling, NoLogitsAreNoToken) {
  EXPECT_THROW(choose_token(Numbers{std::nan(""), std::nan("")}, {}, 0), Error);
  EXPECT_EQ(choose_token(Numbers{std::nan(""), 1}, {}, 0), 1);
}

// ---------------------------------------------------------------- the recipe of a checkpoint

TEST(CheckpointRecipe, TextFromSettingsGivesTheSameSettings) {
  for (const Layout& layout : layouts()) {
    const Recipe recipe = tiny_recipe(with(layout.sets, {"optimizer.schedule.kind=cosine"}),
                                      layout.text +
                                          "[[optimizer.group]]\nmatch = '*.bias'\nlr_scale = 0.5\n"
                                          "[[optimizer.group]]\nmatch = '*.gain'\n");
    const Settings settings = settings_of(recipe);
    EXPECT_EQ(settings_of(Recipe::parse(to_toml(settings), "checkpoint", {}, plugins().catalog())), settings)
        << layout.name;
  }
}

}  // namespace
}  // namespace prun::test::generate_test
