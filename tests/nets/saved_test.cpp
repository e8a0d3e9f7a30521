// Checkpoints of each kind of state that an earlier prun saved (saved/NAME beside saved/NAME.toml): each goes
// on, and is saved again with the same bytes. They are not to be made anew when state moves or is kept
// otherwise: what people have on their disks does not change either. A kind that is new gets one by
// `tools/test --bless nets`, which leaves those alone that are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::saved_test {
namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(PRUN_SOURCE_DIR) / "tests" / "nets" / "saved";
constexpr const char* step = "step-00000002";

// Losses of so many steps; saves at the end.
std::vector<double> train(const fs::path& recipe, const std::vector<std::string>& sets, int steps) {
  fs::current_path(fs::path(tiny_recipe().text("data.path")).parent_path());
  std::vector<double> losses;
  run_local_ranks(Recipe::load(recipe, sets, plugins().catalog()), plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> own = train_steps(trainer, steps);
    trainer.save();
    if (trainer.assembly().rank() == 0) losses = own;
  });
  return losses;
}

class Saved : public testing::Test {
 public:
  explicit Saved(fs::path recipe)
      : recipe_(std::move(recipe)), kept_(fs::path(recipe_).replace_extension()) {}

  void TestBody() override {
    if (std::getenv("PRUN_BLESS") && !fs::exists(kept_)) keep();
    ASSERT_TRUE(fs::exists(kept_)) << "tools/test --bless nets saves what is kept of a new kind";
    train(recipe_, goes_on("same"), 0);
    EXPECT_TRUE(saved_in(out("same") / step) == saved_in(kept_ / step));
    std::ifstream kept(kept_ / "losses");
    for (const double loss : train(recipe_, goes_on("further"), 3)) {
      double before = 0;
      ASSERT_TRUE(kept >> before);
      EXPECT_NEAR(loss, before,
                  1e-3 * std::abs(before));  // instruction sets round bf16 and codes differently
    }
  }

 private:
  fs::path out(const char* name) const { return temporary_ / name; }

  std::vector<std::string> goes_on(const char* name) const {
    return {"run.out=" + out(name).string(), "run.resume=" + (kept_ / step).string()};
  }

  void keep() const {
    train(recipe_, {"run.out=first"}, 2);  // the checkpoint has this name in it
    fs::create_directory(kept_);
    fs::copy(fs::path("first") / step, kept_ / step);
    fs::remove_all("first");
    std::ofstream kept(kept_ / "losses");
    kept.precision(9);
    for (const double loss : train(recipe_, goes_on("kept"), 3)) kept << loss << '\n';
  }

  const fs::path recipe_, kept_;
  const TempFolder temporary_;
};

const bool registered = [] {
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    const fs::path recipe = file.path();
    if (recipe.extension() == ".toml")
      testing::RegisterTest("Saved", recipe.stem().c_str(), nullptr, nullptr, recipe.c_str(), 1,
                            [recipe]() -> testing::Test* { return new Saved(recipe); });
  }
  return true;
}();

TEST(Nets, SavedAreFound) { EXPECT_TRUE(registered && fs::exists(folder / "adamw" / step)); }

}  // namespace
}  // namespace prun::test::saved_test
