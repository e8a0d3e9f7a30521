// Layouts drawn at random, with everything in the host's memory: updates that begin before the norm is known
// have the bits of those that wait. PRUN_SEED repeats a drawing.
#include <gtest/gtest.h>

#include "clipped_runs.hpp"
#include "support/drawn_recipe.hpp"

namespace prun::test::drawn_speculation_test {
namespace {

constexpr int steps = 6;

// Returns the text of a drawing whose state, gradients, parameters and activations are all on the host.
std::string drawn_text(unsigned seed, bool speculates) {
  std::string text = drawn_recipe(seed, Scale::small);
  const std::string offload = drawn_offload(seed);
  if (const std::size_t at = text.find(offload); at != std::string::npos) text.erase(at, offload.size());
  return text + everything_on_host(speculates);
}

Recipe drawn(unsigned seed, bool speculates, double clip) {
  const Recipe recipe = Recipe::parse(drawn_text(seed, speculates), "drawn.toml", {}, plugins().catalog())
                            .with("optimizer.clip", std::to_string(clip));
  const bool stages = recipe.resolved_toml().find("\"pipeline\"") != std::string::npos;
  return stages ? recipe : recipe.with("batch.order", "breadth_first");
}

double median_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

struct Compared {
  int layouts = 0, beyond = 0, steps = 0;
  int mixed = 0;        // number of layouts with norms on both sides
  int speculating = 0;  // number of layouts in which not all calls came too late
};

// Compares a drawing; returns false if nothing of it would speculate. Norms without clipping say which limit
// about half of the steps are beyond.
bool compare(unsigned seed, Compared& all) {
  if (Assembly(drawn(seed, true, 1), plugins()).plan().speculated() == 0) return false;
  const double limit =
      std::stod(std::to_string(median_of(trained_clipped(drawn(seed, false, 1e30), steps).norms)));
  const ClippedRun speculating = trained_clipped(drawn(seed, true, limit), steps),
                   waiting = trained_clipped(drawn(seed, false, limit), steps);
  expect_same(speculating, waiting, "PRUN_SEED=" + std::to_string(seed) + "\n" + drawn_text(seed, true));
  EXPECT_GT(speculating.planned, 0) << seed;
  ++all.layouts;
  all.speculating += speculating.speculated > 0;
  all.steps += steps;
  all.beyond += waiting.beyond(limit);
  all.mixed += waiting.beyond(limit) > 0 && waiting.beyond(limit) < steps;
  return true;
}

void compare_drawings(unsigned first, int wanted) {
  Compared all;
  unsigned drawn = 0;
  for (; all.layouts < wanted && drawn < 100 * static_cast<unsigned>(wanted); ++drawn) try {
      compare(first + drawn, all);
    } catch (const Error& error) {
      EXPECT_TRUE(is_permitted_refusal(error.what())) << "PRUN_SEED=" << first + drawn << "\n"
                                                      << error.what();
    }
  std::printf(
      "%d layouts of %u draws, %d of them with steps on both sides; %d of %d steps beyond the limit\n",
      all.layouts, drawn, all.mixed, all.beyond, all.steps);
  EXPECT_EQ(all.layouts, wanted);
  EXPECT_GE(2 * all.mixed, all.layouts);
  EXPECT_GE(2 * all.speculating, all.layouts);
}

TEST(SpeculationDrawn, HasTheBitsOfUpdatesThatWait) { compare_drawings(first_seed(), 3); }

// 200 in all, 20 at a time.
class SpeculationOfMany : public testing::TestWithParam<unsigned> {};

TEST_P(SpeculationOfMany, DrawnLayoutsHasTheBitsOfUpdatesThatWait) {
  compare_drawings(first_seed() + 1'000'000 * (1 + GetParam()), 20);
}

INSTANTIATE_TEST_SUITE_P(Drawn, SpeculationOfMany, testing::Range(0u, 10u));

}  // namespace
}  // namespace prun::test::drawn_speculation_test
