// Recipes drawn at random, with parts left out: what the search makes of them runs, or is refused in a
// sentence.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "base/text.hpp"
#include "inspect/verify.hpp"
#include "support/drawn_recipe.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "tuned.hpp"

namespace prun::test {
namespace {

// Its tables, each with its header.
std::vector<std::string> tables_of(const std::string& text) {
  std::vector<std::string> tables;
  for (const std::string_view line : split(text, '\n')) {
    if (tables.empty() || line.starts_with('[')) tables.emplace_back();
    tables.back() += std::string(line) + "\n";
  }
  return tables;
}

// Without the mesh, some strategies, or the microbatch.
std::string with_parts_left_out(const std::string& text, std::mt19937& random) {
  const bool no_mesh = random() % 2 == 0, no_micro = random() % 4 != 0;
  std::string left;
  for (std::string table : tables_of(text)) {
    if (table.starts_with("[mesh]") && no_mesh) continue;
    if (table.starts_with("[[strategy]]") && no_mesh && random() % 2 == 0) continue;
    if (table.starts_with("[batch]") && no_micro)
      if (const std::size_t at = table.find("micro = "); at != std::string::npos)
        table.erase(at, table.find('\n', at) + 1 - at);
    left += table;
  }
  return left;
}

int draws() { return std::getenv("PRUN_LONG") ? 200 : 12; }

TEST(Drawn, PartsLeftOutComeBackAsARecipeThatRuns) {
  int ran = 0, refused = 0;
  for (int i = 0; i < draws(); ++i) {
    const unsigned seed = first_seed() + static_cast<unsigned>(i);
    std::mt19937 random(seed);
    const std::string whole = drawn_recipe(seed, Scale::small);
    const std::string text = with_parts_left_out(whole, random);
    SCOPED_TRACE(detail::concat("seed ", seed, "\n", text));
    const std::int64_t ranks = mesh_of(Recipe::parse(whole, "drawn", {}, plugins().catalog())).world();
    TuneResult result;
    const std::string said = refusal_of([&] {
      const Recipe recipe =
          Recipe::parse(text, "drawn", std::vector<std::string>{"comm.default=meet"}, plugins().catalog());
      result = tuned(recipe, request_for(ranks));
    });
    if (!said.empty()) {
      EXPECT_TRUE(said.find("more ranks (--ranks)") != std::string::npos ||
                  said.find("change [mesh] or the ranks") != std::string::npos ||
                  said.find("the cost table has nothing on 'nvme: ") !=
                      std::string::npos ||  // rates know the host alone
                  is_permitted_refusal(said))
          << said;
      ++refused;
      continue;
    }
    ++ran;
    const Recipe recipe = read(result.recipe);
    EXPECT_EQ(mesh_of(recipe).world(), ranks);
    const Assembly assembly(recipe, plugins());
    if (ranks == 1 || ranks > 8 || i % 4 != 0) continue;
    const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 2);
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  }
  EXPECT_GT(ran, refused);
  RecordProperty("ran", ran);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace prun::test
