// What ranks send a step, as the comm plugin counts it in real runs, is what the papers' formulas say.
#include <gtest/gtest.h>

#include <sstream>

#include "estimate/forecast.hpp"
#include "support/assembly_fixture.hpp"
#include "support/planned_traffic.hpp"
#include "support/traffic_formulas.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::traffic_test {
namespace {

using Sent = std::map<std::string, Bytes>;  // by axis

std::string strategies(const Sizes& s) {
  std::ostringstream mesh, list;
  mesh << "[mesh]\n";
  if (s.dp > 1) {
    mesh << "dp = " << s.dp << '\n';
    list << "[[strategy]]\nplugin = 'data'\n";
  }
  if (s.pp > 1) {
    mesh << "pp = " << s.pp << '\n';
    list << "[[strategy]]\nplugin = 'pipeline'\nschedule = '" << s.schedule << "'\nchunks = " << s.chunks
         << "\nlayers = [";
    const std::int64_t stages = s.pp * s.chunks;
    for (std::int64_t stage = 0; stage < stages; ++stage)
      list << s.layers / stages + (stage == 0) + (stage + 1 == stages) << ',';
    list << "]\n";
  }
  if (s.cp > 1) {
    mesh << "cp = " << s.cp << '\n';
    list << "[[strategy]]\nplugin = 'context'\n" << (s.zigzag ? "" : "balance = 'none'\n");
  }
  if (s.tp > 1) {
    mesh << "tp = " << s.tp << '\n';
    list << "[[strategy]]\nplugin = 'tensor'\nsequence = " << (s.sequence ? "true" : "false") << '\n';
  }
  return mesh.str() + list.str();
}

Recipe recipe_of(const Sizes& s, const std::string& more, const std::vector<std::string>& also = {}) {
  const auto set = [](const char* key, std::int64_t value) { return key + ("=" + std::to_string(value)); };
  std::vector<std::string> sets = {set("model.hidden", s.hidden),
                                   set("model.heads", s.heads),
                                   set("model.ffn", s.ffn),
                                   set("model.seq", s.seq),
                                   set("model.layers", s.layers),
                                   set("model.vocab", s.vocab),
                                   set("batch.micro", s.batch),
                                   set("batch.global", s.batch * s.microbatches * s.dp),
                                   std::string("model.tied=") + (s.tied ? "true" : "false"),
                                   "device.threads=1",
                                   "device.pin=false",
                                   "run.bucket_bytes=0B"};  // what is kept in a bundle is not gathered again
  if (s.experts > 0)
    sets.insert(sets.end(), {set("model.experts", s.experts), set("model.choices", s.choices),
                             set("model.expert_ffn", s.ffn)});
  if (s.window > 0) sets.push_back(set("model.window", s.window));
  if (s.llama) sets.insert(sets.end(), {"model.plugin=llama", set("model.kv_heads", s.kv_heads)});
  sets.insert(sets.end(), also.begin(), also.end());
  return tiny_recipe(sets, strategies(s) + more);
}

Sent counted(Trainer& trainer) {
  Sent sent;
  const std::vector<QueueInfo>& queues = trainer.assembly().plan().queues;
  for (std::size_t q = 0; q < queues.size(); ++q)
    if (queues[q].communicates())
      sent[trainer.assembly().mesh().name(queues[q].axis)] +=
          static_cast<Bytes>(trainer.communicators()->counters(q).bytes_sent);
  return sent;
}

// What each rank sends a step, which is the same in both of two.
std::vector<Sent> sent_by_axis(const Recipe& recipe) {
  std::vector<Sent> ranks(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    trainer.step();
    expect_planned_traffic(trainer);
    const Sent first = counted(trainer);
    trainer.step();
    Sent second = counted(trainer);
    for (auto& [axis, bytes] : second) bytes -= first.at(axis);
    EXPECT_EQ(first, second);
    ranks[static_cast<std::size_t>(trainer.assembly().rank())] = second;
  });
  return ranks;
}

// `formula` says what a rank with that share of the model sends, by axis.
template <class Formula>
void expect_sent(const Sizes& s, const std::string& more, Formula&& formula,
                 const std::vector<std::string>& also = {}) {
  const std::vector<Sent> sent = sent_by_axis(recipe_of(s, more, also));
  ASSERT_EQ(sent.size(), static_cast<std::size_t>(s.dp * s.pp * s.tp * s.cp));
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    const Share share = share_of(s, static_cast<std::int64_t>(rank) / s.tp % s.pp);
    EXPECT_EQ(sent[rank], formula(share)) << "rank " << rank << more;
  }
}

// ---------------------------------------------------------------- tensor parallelism

void expect_tensor(const Sizes& s, const std::string& more = "", std::int64_t again = 0) {
  expect_sent(s, more, [&](const Share& share) { return Sent{{"tp", tensor(s, share, again)}}; });
}

const Sizes gpt, llama{.llama = true, .ffn = 256, .heads = 8, .kv_heads = 4};

Sizes over_tp(Sizes s, std::int64_t tp, bool sequence) {
  s.tp = tp;
  s.sequence = sequence;
  s.layers = 2;
  return s;
}

TEST(Traffic, TensorAllReducesFourTimesALayer) {
  for (const std::int64_t tp : {2, 4}) {
    const Sizes s = over_tp(gpt, tp, false);
    EXPECT_EQ(tensor_layer(s), 8 * s.batch * s.seq * s.hidden * (tp - 1) / tp * element);
    expect_tensor(s);
    expect_tensor(over_tp(llama, tp, false));
  }
}

TEST(Traffic, SequenceGathersAndScattersInsteadAndGathersOnceMoreBackward) {
  for (const std::int64_t tp : {2, 4}) {
    const Sizes s = over_tp(gpt, tp, true);
    EXPECT_EQ(tensor_layer(s) - 2 * half(activation(s), tp), tensor_layer(over_tp(gpt, tp, false)));
    expect_tensor(s);
    expect_tensor(over_tp(llama, tp, true));
  }
}

// ---------------------------------------------------------------- sequences in parts

TEST(Traffic, KeysAndValuesAloneTravelAcrossPartsOfSequences) {
  for (const std::int64_t cp : {2, 4})
    for (Sizes s : {gpt, llama}) {
      s.cp = cp;
      s.layers = 2;
      // As many heads as there are of keys and values, however many queries share one.
      EXPECT_EQ(context_layer(s),
                6 * (cp - 1) * s.batch * s.seq / cp * s.kv_heads * (s.hidden / s.heads) * element);
      expect_sent(s, "", [&](const Share& share) { return Sent{{"cp", context(s, share)}}; });
      // Computed again in backward, they are gathered there once all the same.
      expect_sent(s, "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n", [&](const Share& share) {
        return Sent{{"cp", context(s, share)}};
      });
    }
}

// Positions that a window reaches travel to the ranks that read it, and to no others: the last positions of a
// chunk to the next one, or all of it and the last ones of those before; all keys only where that is no more.
TEST(Traffic, OfAWindowItsReachAloneTravelsToThoseWhoReadIt) {
  for (const std::int64_t cp : {2, 4})
    for (const bool zigzag : {false, true})
      for (const std::int64_t window : {2, 6, 13, 19, 40}) {
        Sizes s = llama;
        s.cp = cp, s.layers = 2, s.window = window, s.zigzag = zigzag, s.seq = 48;
        const std::int64_t reach = window - 1, of_one = keys_of(s, reach),
                           readers = chunks_of(s) - 1 - zigzag;
        Bytes all = 0;
        for (std::int64_t at = 0; at < cp; ++at) all += context_layer(s, at);
        if (window == 6) {
          EXPECT_EQ(all, 6 * readers * of_one);
        }
        const std::vector<Sent> sent = sent_by_axis(recipe_of(s, ""));
        for (std::int64_t at = 0; at < cp; ++at)
          EXPECT_EQ(sent[static_cast<std::size_t>(at)], (Sent{{"cp", context(s, share_of(s, 0), at)}}))
              << "rank " << at << " of " << cp << (zigzag ? ", zigzag" : "") << ", window " << window;
      }
}

// A plan says of ranks that send different amounts what the one sends that sends most.
TEST(Traffic, APlanSaysTheMostThatARankSends) {
  for (const bool zigzag : {false, true}) {
    Sizes s = llama;
    s.cp = 4, s.layers = 2, s.window = 6, s.zigzag = zigzag, s.seq = 48;
    const Assembly assembly(recipe_of(s, ""), plugins());
    Bytes planned = 0, least = 0, most = 0;
    for (const std::uint64_t bytes : sent_of(assembly, plugins())) planned += static_cast<Bytes>(bytes);
    for (std::int64_t at = 0; at < s.cp; ++at) {
      const Bytes sent = context(s, share_of(s, 0), at);
      most = std::max(most, sent);
      least = at == 0 ? sent : std::min(least, sent);
    }
    EXPECT_EQ(planned, most);
    EXPECT_LT(least, most);
  }
}

TEST(Traffic, HeadsForSequencesIsOnePartOfThemForEachOtherRank) {
  for (const std::int64_t cp : {2, 4})
    for (Sizes s : {gpt, llama}) {
      s.cp = cp;
      s.layers = 2;
      EXPECT_EQ(by_heads_layer(s), 4 * (s.heads + s.kv_heads) * (cp - 1) * (s.batch * s.seq / cp) *
                                       (s.hidden / s.heads) * element / cp);
      const auto all = [&](const Share& share) { return Sent{{"cp", by_heads(s, share)}}; };
      expect_sent(s, "", all, {"strategy.0.method=ulysses"});
    }
}

// A piece for each sample: 512 x 512 numbers.
TEST(Traffic, WhatTravelsInPiecesIsAsMuch) {
  Sizes s = over_tp(gpt, 2, true);
  s.batch = 2;
  s.seq = 1024;
  s.hidden = 512;
  s.layers = 1;
  expect_tensor(s);
}

TEST(Traffic, ATiedTableIsSplitAsAnUntiedOne) {
  Sizes s = over_tp(gpt, 2, true);
  s.tied = true;
  expect_tensor(s);
}

// ---------------------------------------------------------------- recomputation

std::string recompute(const std::string& ops = "") {
  const std::string text = "[[strategy]]\nplugin = 'recompute'\n";
  return ops.empty() ? text + "mode = 'full'\n" : text + "mode = 'selective'\nops = " + ops + "\n";
}

// Forward's exchanges but for the last one, which running the whole layer again would repeat as well: what a
// layer hands on its backward does not read. With sequence these are two gathers and a scatter; backward has
// the two gathers for itself as well, and does them once.
TEST(Traffic, FullRecomputationRepeatsAllThatBackwardReads) {
  for (const Sizes& model : {gpt, llama}) {
    expect_tensor(over_tp(model, 2, false), recompute(), 1);
    expect_tensor(over_tp(model, 2, true), recompute(), 1);
  }
}

TEST(Traffic, SelectiveRecomputationRepeatsTheExchangesThatItNames) {
  for (const bool sequence : {false, true})
    expect_tensor(over_tp(gpt, 2, sequence), recompute("['attention']"));
  expect_tensor(over_tp(gpt, 2, false), recompute("['layernorm', 'linear', 'add', 'all_reduce']"), 1);
  const std::string gather = "['layernorm', 'linear', 'split_heads', 'gelu', 'all_gather', 'unblock']";
  expect_tensor(over_tp(gpt, 2, true), recompute(gather));
}

// ---------------------------------------------------------------- pipelines

Sizes over_pp(std::int64_t pp, const char* schedule, std::int64_t chunks = 1) {
  Sizes s{.batch = 1, .seq = 16, .hidden = 64, .ffn = 64, .layers = pp * chunks};
  s.pp = pp;
  s.microbatches = 4;
  s.schedule = schedule;
  s.chunks = chunks;
  return s;
}

Sent pipeline_alone(const Sizes& s, const Share& share) { return {{"pp", pipeline(s, share)}}; }

TEST(Traffic, PipelinesSendWhatCrossesTheirBoundaries) {
  for (const std::int64_t pp : {2, 4})
    for (const Sizes& s : {over_pp(pp, "gpipe"), over_pp(pp, "1f1b"), over_pp(pp, "interleaved", 2),
                           over_pp(pp, "zb-h1"), over_pp(pp, "zb-v", 2)}) {
      std::int64_t all = 0;
      for (std::int64_t coordinate = 0; coordinate < pp; ++coordinate)
        all += crossings(s, share_of(s, coordinate));
      EXPECT_EQ(all, s.schedule == "zb-v" ? 4 * (pp - 1) : 2 * (pp * s.chunks - 1));
      expect_sent(s, "", [&](const Share& share) { return pipeline_alone(s, share); });
    }
}

TEST(Traffic, TwoRanksOfAPipelineSumTheGradientOfATiedTable) {
  for (Sizes s : {over_pp(2, "1f1b"), over_pp(4, "zb-h1"), over_pp(2, "zb-v", 2)}) {
    s.tied = true;
    expect_sent(s, "", [&](const Share& share) { return pipeline_alone(s, share); });
  }
}

TEST(Traffic, PipelinesBesideDataParallelRanks) {
  for (Sizes s : {over_pp(2, "1f1b"), over_pp(2, "zb-v", 2)})
    for (const bool tied : {false, true}) {
      s.layers = 4;
      s.dp = 2;
      s.tied = tied;
      expect_sent(s, "", [&](const Share& share) {
        return Sent{{"dp", data(s, share)}, {"pp", pipeline(s, share)}};
      });
    }
}

// ---------------------------------------------------------------- data parallelism and ZeRO

Sizes over_dp(Sizes s, std::int64_t dp, std::int64_t microbatches) {
  s.batch = 1;
  s.seq = 16;
  s.layers = 3;
  s.dp = dp;
  s.microbatches = microbatches;
  return s;
}

TEST(Traffic, DataParallelRanksSumAllGradientsOnceAStep) {
  for (const std::int64_t microbatches : {1, 3})
    for (const Sizes& model : {gpt, llama}) {
      const Sizes s = over_dp(model, 2, microbatches);
      expect_sent(s, "", [&](const Share& share) { return Sent{{"dp", data(s, share)}}; });
    }
}

// Where a ring's blocks are not equal, a rank sends a little more than another: together what the formula
// says.
TEST(Traffic, FourDataParallelRanksTogether) {
  const Sizes s = over_dp(gpt, 4, 2);
  Bytes total = 0;
  for (const Sent& sent : sent_by_axis(recipe_of(s, ""))) total += sent.at("dp");
  EXPECT_EQ(total, 4 * data(s, share_of(s, 0)));
}

struct Zero {
  int stage;
  const char* options;   // further ones
  bool each_microbatch;  // whether gradients are reduced after each: r = m, else r = 1
};
const Zero zeros[] = {
    {1, "", false},
    {2, "", true},
    {3, "", true},
    {3, "reduce = 'step'\n", false},
};

std::string text_of(const Zero& z) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(z.stage) + "\n" + z.options;
}

std::int64_t reductions_of(const Zero& z, const Sizes& s) { return z.each_microbatch ? s.microbatches : 1; }

void expect_zero(const Sizes& s, const Zero& z) {
  expect_sent(s, text_of(z), [&](const Share& share) {
    return Sent{{"dp", zero(s, share, z.stage, reductions_of(z, s))}};
  });
}

TEST(Traffic, ZeroReducesAndGathersParts) {
  for (const Zero& z : zeros) {
    for (const std::int64_t microbatches : {1, 3}) expect_zero(over_dp(gpt, 2, microbatches), z);
    expect_zero(over_dp(gpt, 4, 2), z);
    expect_zero(over_dp(llama, 2, 2), z);
  }
}

// Vectors of 64 elements are padded to twice that.
TEST(Traffic, ZeroSendsThePaddingOfItsBuckets) {
  Sizes s = over_dp(gpt, 2, 2);
  s.hidden = 64;
  EXPECT_GT(packed(block(s), s), bytes_of(block(s)));
  for (const Zero& z : zeros) expect_zero(s, z);
}

// What is missing does not grow with the layers: the more there are, the closer to the paper.
TEST(Traffic, Zero3StaysBelowThePapersBoundAndComesCloseToIt) {
  const auto missing = [](std::int64_t layers, const Zero& z) {
    Sizes s = over_dp(gpt, 2, 2);
    s.layers = layers;
    expect_zero(s, z);
    const Share share = share_of(s, 0);
    const std::int64_t r = reductions_of(z, s);
    return zero3_bound(s, share, r) - zero(s, share, z.stage, r);
  };
  for (const Zero& z : zeros) {
    if (z.stage < 3) continue;
    const Bytes of_two = missing(2, z);
    EXPECT_GE(of_two, 0);
    for (const std::int64_t layers : {3, 8}) EXPECT_EQ(missing(layers, z), of_two);
  }
}

// ---------------------------------------------------------------- experts

TEST(Traffic, PositionsComeTogetherForExpertsAndTheirGradientsStay) {
  for (const std::int64_t dp : {2, 4})
    for (const std::int64_t microbatches : {1, 3})
      for (const std::int64_t choices : {2, 3}) {
        Sizes s = over_dp(llama, dp, microbatches);
        s.experts = 8;
        s.choices = choices;
        const Bytes t = s.batch * s.seq;
        EXPECT_EQ(experts_layer(s), (dp - 1) * (5 * t * s.hidden * element + 20 * t * choices));
        Bytes total = 0;
        for (const Sent& sent : sent_by_axis(recipe_of(s, "[[strategy]]\nplugin = 'experts'\n")))
          total += sent.at("dp");
        EXPECT_EQ(total, dp * experts(s, share_of(s, 0))) << dp << microbatches << choices;
      }
}

TEST(Traffic, PositionsGoToTheRanksOfTheirExpertsAlone) {
  for (const std::int64_t dp : {2, 4})
    for (const std::int64_t microbatches : {1, 3})
      for (const double rows : {1.0, 9.0}) {
        Sizes s = over_dp(llama, dp, microbatches);
        s.experts = 16;
        s.rows = rows;
        const std::string strategy =
            "[[strategy]]\nplugin = 'experts'\nexchange = 'all_to_all'\nrows = " + std::to_string(rows) +
            "\n";
        Bytes total = 0;
        for (const Sent& sent : sent_by_axis(recipe_of(s, strategy))) total += sent.at("dp");
        EXPECT_EQ(total, dp * experts(s, share_of(s, 0))) << dp << microbatches << rows;
        EXPECT_EQ(sent_rows_layer(s) == experts_layer(s), rows > 2);
      }
}

// ---------------------------------------------------------------- all of them

Sizes over_all(const Sizes& model, bool sequence) {
  Sizes s = over_dp(over_tp(model, 2, sequence), 2, 2);
  s.pp = 2;
  s.layers = 4;
  return s;
}

TEST(Traffic, EachAxisOfThreeSendsWhatItSendsAlone) {
  for (const Sizes& s : {over_all(gpt, false), over_all(llama, true)})
    expect_sent(s, "", [&](const Share& share) {
      return Sent{{"dp", data(s, share)}, {"pp", pipeline(s, share)}, {"tp", tensor(s, share)}};
    });
}

// From stage 2 on, gradients are reduced over tp too after each microbatch.
TEST(Traffic, EachAxisOfThreeWithZero) {
  const Sizes s = over_all(gpt, true);
  for (const Zero& z : zeros) {
    const std::int64_t r = reductions_of(z, s);
    expect_sent(s, text_of(z), [&](const Share& share) {
      return Sent{
          {"dp", zero(s, share, z.stage, r)}, {"pp", pipeline(s, share)}, {"tp", tensor(s, share, 0, r)}};
    });
  }
}

}  // namespace
}  // namespace prun::test::traffic_test
