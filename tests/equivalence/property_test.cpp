// Recipes drawn at random each either train like one rank, or are refused for a reason that is in order.
// PRUN_SEED repeats a drawing; with PRUN_LONG 350 train instead of 20.
#include <gtest/gtest.h>

#include <cstdlib>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/drawn_recipe.hpp"

namespace prun::test {
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
};

TEST(Property, ARecipeTrainsLikeOneRankOrIsRefusedForAReason) {
  const unsigned first = first_seed();
  std::printf("seed %u (PRUN_SEED=%u repeats)\n", first, first);
  const unsigned wanted = std::getenv("PRUN_LONG") ? 350 : 20;
  std::map<std::string, Worst> worst;  // by precision
  unsigned trained = 0, drawn = 0;
  while (trained < wanted && drawn < 5 * wanted) {
    const unsigned seed = first + drawn++;
    const std::string text = drawn_recipe(seed, Scale::small);
    try {
      const Recipe recipe = Recipe::parse(text, "drawn.toml", {}, plugins().catalog());
      const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 5);
      ++trained;
      worst[recipe.text("precision.compute")].take(verdict, seed);
      EXPECT_TRUE(verdict.equal()) << "PRUN_SEED=" << seed << "\n" << text << to_text(verdict);
    } catch (const Error& error) {
      EXPECT_TRUE(is_permitted_refusal(error.what())) << "PRUN_SEED=" << seed << "\n" << text << error.what();
    }
  }
  std::printf("%u of %u draws trained, the others were refused for a permitted reason\n", trained, drawn);
  for (const auto& [precision, is] : worst)
    std::printf("%s: worst loss %.2g (%s), gradient %.2g (%s), parameter %.2g (%s)\n", precision.c_str(),
                is.loss.value, is.loss.where.c_str(), is.gradient.value, is.gradient.where.c_str(),
                is.parameter.value, is.parameter.where.c_str());
  EXPECT_EQ(trained, wanted);
}

}  // namespace
}  // namespace prun::test
