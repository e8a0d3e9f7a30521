// Recipes drawn at random each either train like one rank, or are refused for a reason that is in order.
// PRUN_SEED repeats a drawing; with PRUN_LONG 350 train instead of 20, and 100 instead of 10 on two devices.
#include <gtest/gtest.h>

#include <cstdlib>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/drawn_chat.hpp"
#include "support/drawn_recipe.hpp"
#include "support/layouts.hpp"
#include "support/tallies.hpp"

namespace prun::test::property_test {
namespace {

// Of all drawings in one precision.
struct Worst {
  Difference loss, gradient, parameter;

  void take(const LayoutVerdict& verdict, unsigned seed) {
    const std::string where = "PRUN_SEED=" + std::to_string(seed) + " ";
    loss.take(verdict.loss.value, where + verdict.loss.where);
    gradient.take(verdict.gradient.value, where + verdict.gradient.where);
    parameter.take(verdict.parameter.value, where + verdict.parameter.where);
  }
  void print(const std::string& precision) const {
    std::printf("%s: worst loss %.2g (%s), gradient %.2g (%s), parameter %.2g (%s)\n", precision.c_str(),
                loss.value, loss.where.c_str(), gradient.value, gradient.where.c_str(), parameter.value,
                parameter.where.c_str());
  }
};

// Calls train(seed, text), which may be refused for a reason that is in order, for drawings until so many
// have trained.
template <class Train>
void draw_until_trained(unsigned wanted, Train&& train,
                        std::string (*changed)(unsigned, std::string) = nullptr) {
  const unsigned first = first_seed();
  std::printf("seed %u (PRUN_SEED=%u repeats)\n", first, first);
  unsigned trained = 0, drawn = 0;
  while (trained < wanted && drawn < 5 * wanted) {
    const unsigned seed = first + drawn++;
    std::string text = drawn_recipe(seed, Scale::small);
    if (changed) text = changed(seed, std::move(text));
    try {
      train(seed, text);
      ++trained;
    } catch (const Error& error) {
      EXPECT_TRUE(is_permitted_refusal(error.what())) << "PRUN_SEED=" << seed << "\n" << text << error.what();
    }
  }
  std::printf("%u of %u draws trained, the others were refused for a permitted reason\n", trained, drawn);
  EXPECT_EQ(trained, wanted);
}

LayoutVerdict verdict_of(const std::string& text) {
  return verify_layout(Recipe::parse(text, "drawn.toml", {}, plugins().catalog()), plugins().places(), 5);
}

TEST(Property, ARecipeTrainsLikeOneRankOrIsRefusedForAReason) {
  std::map<std::string, Worst> worst;  // by precision
  draw_until_trained(std::getenv("PRUN_LONG") ? 350 : 20, [&](unsigned seed, const std::string& text) {
    const LayoutVerdict verdict = verdict_of(text);
    const Recipe recipe = Recipe::parse(text, "drawn.toml", {}, plugins().catalog());
    worst[recipe.text("precision.compute")].take(verdict, seed);
    EXPECT_TRUE(verdict.equal()) << "PRUN_SEED=" << seed << "\n" << text << to_text(verdict);
  });
  for (const auto& [precision, is] : worst) is.print(precision);
}

// A drawn recipe trains to what one rank trains it to.
void expect_one_ranks(unsigned seed, const std::string& text) {
  const LayoutVerdict verdict = verdict_of(text);
  EXPECT_TRUE(verdict.equal()) << "PRUN_SEED=" << seed << "\n" << text << to_text(verdict);
}

TEST(Property, ADecoderOfAnyFamilyTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 200 : 20, expect_one_ranks, drawn_family);
}

// Layers of the gated delta rule are drawn, over heads and pipelines, some of them beside attention.
TEST(Property, AModelWithStatesTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 200 : 20, expect_one_ranks, drawn_with_states);
}

// With exchanges and ops that few recipes have.
TEST(Property, ARecipeWithOtherExchangesTrainsLikeOneRank) {
  const auto train = [&](unsigned seed, const std::string& text) {
    const LayoutVerdict verdict =
        verify_layout(Recipe::parse(text, "drawn.toml", {}, plugins().catalog()), plugins().places(),
                      {.steps = 5, .bound = {}, .exact = drawn_numbers(text)});
    EXPECT_TRUE(verdict.equal()) << "PRUN_SEED=" << seed << "\n" << text << to_text(verdict);
  };
  draw_until_trained(std::getenv("PRUN_LONG") ? 200 : 20, train, drawn_exchanges);
}

// Small matrices beside weights that have neither gradients nor state.
TEST(Property, ARecipeWithAdaptersTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 100 : 10, expect_one_ranks, drawn_adapters);
}

// With sequences in parts, and groups of key and value heads that ranks share.
TEST(Property, ARecipeOfLongSequencesTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 200 : 20, expect_one_ranks, drawn_long);
}

// Masks are the same in every layout, and so is what both directions make of them.
TEST(Property, AModelOfMaskedTokensTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 80 : 12, expect_one_ranks, drawn_masked);
}

// What segments carry lies once on a rank, and its gradient is summed in the same order.
TEST(Property, AModelThatCarriesValuesTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 120 : 15, expect_one_ranks, drawn_relay);
}

// An encoder's output and two tables of distances are carried; what is cut out of a text is the same
// everywhere.
TEST(Property, AModelWithEncoderAndDecoderTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 80 : 12, expect_one_ranks, drawn_spans);
}

// A sample holds several conversations, and some tokens of each are learned.
TEST(Property, ARecipeOfConversationsTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 60 : 6, expect_one_ranks, drawn_chat);
}

// Experts are chosen by number, so that choices and their counts are equal to the last; losses are of few
// roundings, whatever is split.
void expect_experts_of_one_rank(unsigned seed, const std::string& text, Worst& worst) {
  const std::string drawn = "PRUN_SEED=" + std::to_string(seed) + "\n" + text;
  const Recipe recipe = Recipe::parse(text, "drawn.toml", {}, plugins().catalog());
  const LayoutVerdict verdict =
      verify_layout(recipe, plugins().places(), {.steps = 5, .bound = 1e-11, .exact = drawn_numbers(text)});
  worst.take(verdict, seed);
  EXPECT_TRUE(verdict.compares_numbers && verdict.equal()) << drawn << to_text(verdict);
  EXPECT_LE(verdict.loss.value, 1e-14) << drawn << to_text(verdict);
  const Assembly assembly(recipe, plugins());
  const BatchArithmetic& batch = assembly.batch();
  const std::vector<StepTally> alone =
      tallies_of(one_rank_equivalent(recipe, batch.micro * batch.ranks), 3, ".choices");
  EXPECT_FALSE(alone.empty()) << drawn;
  expect_same(tallies_of(recipe, 3, ".choices"), alone, drawn);
  expect_same(tallies_of(recipe, 3, ".dropped"),
              tallies_of(one_rank_equivalent(recipe, batch.micro * batch.ranks), 3, ".dropped"), drawn);
}

TEST(Property, ARecipeWithExpertsTrainsLikeOneRankAndChoosesTheSame) {
  Worst worst;
  draw_until_trained(
      std::getenv("PRUN_LONG") ? 200 : 12,
      [&](unsigned seed, const std::string& text) { expect_experts_of_one_rank(seed, text, worst); },
      drawn_experts);
  worst.print("fp64");
}

TEST(Property, ARecipeThatSendsPositionsToTheirExpertsTrainsLikeOneRank) {
  Worst worst;
  draw_until_trained(
      std::getenv("PRUN_LONG") ? 150 : 8,
      [&](unsigned seed, const std::string& text) { expect_experts_of_one_rank(seed, text, worst); },
      drawn_sent);
  worst.print("fp64");
}

TEST(Property, ARecipeOfLongSequencesByHeadsTrainsLikeOneRank) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 150 : 5, expect_one_ranks, drawn_by_heads);
}

// Of two layouts of the same recipe, which were compared with the same rank.
void expect_same(const LayoutVerdict& a, const LayoutVerdict& b, const std::string& drawn) {
  const std::vector<const Difference*> one = a.all(), other = b.all();
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i]->value, other[i]->value) << drawn << to_text(b);
    EXPECT_EQ(one[i]->where, other[i]->where) << drawn << to_text(b);
  }
}

// Not one bit differs from what the device cpu comes to, with a comm plugin that sums in the same order.
TEST(Property, ADeviceThatRunsLaterTrainsToTheSameBits) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 100 : 5, [&](unsigned seed, const std::string& text) {
    const LayoutVerdict at_once = verdict_of(text + "[comm]\ndefault = 'meet'\n"),
                        later = verdict_of(drawn_on_async(text, "delay_us = 20\n"));
    const std::string drawn = "PRUN_SEED=" + std::to_string(seed) + "\n" + text;
    EXPECT_TRUE(later.equal()) << drawn << to_text(later);
    expect_same(at_once, later, drawn);
  });
}

// Wherever the optimizer's state lies and updates run, and parameters, gradients and activations with it;
// recipes that have offload already are compared with themselves without it.
TEST(Property, AnOffloadedOptimizerTrainsToTheSameBits) {
  draw_until_trained(std::getenv("PRUN_LONG") ? 100 : 5, [&](unsigned seed, const std::string& text) {
    std::string without = text;
    const std::string drawn_too = drawn_offload(seed), moved = drawn_offload(3 * seed);
    if (const std::size_t at = text.find(drawn_too); at != std::string::npos)
      without.erase(at, drawn_too.size());
    const std::string drawn = "PRUN_SEED=" + std::to_string(seed) + "\n" + without;
    expect_same(verdict_of(drawn_on_async(without)), verdict_of(drawn_on_async(without + moved)), drawn);
  });
}

}  // namespace
}  // namespace prun::test::property_test
