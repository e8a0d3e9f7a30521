// Ranks that hold parts and were given files that do not belong together.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/agreement.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::agreement_test {
namespace {

namespace fs = std::filesystem;

const std::string zero3 = data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n";

Recipe recipe_of(const std::string& layout, const fs::path& out, std::vector<std::string> sets = {}) {
  sets.insert(sets.end(), {"run.out=" + out.string(), "model.layers=1", "model.hidden=16", "batch.micro=1"});
  return tiny_recipe(sets, layout);
}

// Saves after each of some steps.
void save(const Recipe& recipe, int steps) {
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    for (int i = 0; i < steps; ++i) {
      trainer.step();
      trainer.save();
    }
  });
}

// What is said where ranks go on from a folder.
std::string refusal(const Recipe& recipe, const fs::path& folder) {
  try {
    run_local_ranks(recipe.with("run.resume", folder.string()), plugins().places(),
                    [](Trainer& trainer) { trainer.step(); });
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << text;
}

class Parts : public testing::Test {
 protected:
  fs::path file(const std::string& folder, int rank) const {
    return folder_ / (folder + "/rank-0000" + std::to_string(rank) + ".safetensors");
  }
  // A copy of a checkpoint in which one file is from elsewhere.
  fs::path mixed(const std::string& checkpoint, int rank, const fs::path& other) const {
    const fs::path copy = folder_ / "mixed";
    fs::remove_all(copy);
    fs::copy(folder_ / checkpoint, copy);
    fs::copy_file(other, file("mixed", rank), fs::copy_options::overwrite_existing);
    return copy;
  }

  const TempFolder folder_;
  const Recipe recipe_ = recipe_of(zero3, folder_ / "run");
};

// Of another step, run, save of the step or rank: each is another file than the one that was saved with the
// rest.
TEST_F(Parts, OfTwoCheckpointsAreNotMixed) {
  save(recipe_, 2);
  save(recipe_of(zero3, folder_ / "other"), 2);
  fs::copy(folder_ / "run/step-00000002", folder_ / "first");
  save(recipe_.with("run.resume", folder_ / "run/step-00000001").with("optimizer.lr", "1e-4"), 1);
  EXPECT_EQ(refusal(recipe_, folder_ / "run"), "no error");
  for (const fs::path& other : {file("run/step-00000001", 1), file("first", 1), file("run/step-00000002", 0)})
    expect_part(refusal(recipe_, mixed("run/step-00000002", 1, other)),
                file("mixed", 1).string() + " is not the file that the manifest names; bring the files");
}

TEST_F(Parts, AreAllNeededAndWhole) {
  save(recipe_, 1);
  const std::string path = file("run/step-00000001", 1), good = read_file(path);
  std::string bad = good;
  bad[bad.size() - 1000] ^= 1;
  folder_.write("run/step-00000001/rank-00001.safetensors", bad);
  expect_part(refusal(recipe_, folder_ / "run"), path + ": tensor '");
  folder_.write("run/step-00000001/rank-00001.safetensors", good);
  EXPECT_EQ(refusal(recipe_, folder_ / "run"), "no error");
  fs::remove(path);
  expect_part(refusal(recipe_, folder_ / "run"), path + " is not there: the checkpoint is not whole");
}

// One rank finds it; all go on from the one before.
TEST_F(Parts, OneThatARankFindsDamagedIsUsedByNone) {
  save(recipe_, 2);
  const std::string path = file("run/step-00000002", 1);
  std::string bad = read_file(path);
  bad[bad.size() - 1000] ^= 1;
  folder_.write("run/step-00000002/rank-00001.safetensors", bad);
  run_local_ranks(recipe_.with("run.resume", folder_ / "run"), plugins().places(), [&](Trainer& trainer) {
    EXPECT_EQ(trainer.progress().step, 1);
    ASSERT_EQ(trainer.resume_warnings().size(), 1u);
    expect_part(trainer.resume_warnings()[0], path + ": tensor '");
    trainer.step();
    trainer.save();
  });
  EXPECT_EQ(refusal(recipe_, folder_ / "run"), "no error");
  expect_part(refusal(recipe_, folder_ / "run/step-00000002.damaged"), "rank-00001.safetensors: tensor '");
}

// Both meshes are a = 2, b = 2, and all parts have the same shapes.
TEST_F(Parts, OfOtherTensorsAreNotConfused) {
  const auto layout = [](const std::string& data, const std::string& tensor) {
    return "[mesh]\na = 2\nb = 2\n[[strategy]]\nplugin = 'data'\naxis = '" + data +
           "'\n[[strategy]]\nplugin = 'tensor'\naxis = '" + tensor + "'\n";
  };
  save(recipe_of(layout("a", "b"), folder_ / "ab"), 1);
  const Recipe other = recipe_of(layout("b", "a"), folder_ / "ba").with("run.resume", folder_ / "ab");
  run_local_ranks(other, plugins().places(), [](Trainer& trainer) { trainer.save(); });
  EXPECT_TRUE(saved_in(folder_ / "ba/step-00000001") == saved_in(folder_ / "ab/step-00000001"));
}

// Another rank says the same of all topics but one, which differs from this rank's in nothing else.
TEST(Agreement, RanksWithAnotherPlanDoNotTrain) {
  const Assembly assembly(tiny_recipe({"batch.micro=2"}, data_parallel(2)), plugins());
  constexpr std::size_t digits = 64;
  std::string said;
  std::size_t topics = 1;
  for (std::size_t topic = 0; topic < topics; ++topic) {
    const auto exchange = [&](std::string_view channel, std::span<const int>, std::string_view mine) {
      std::string theirs(mine);
      if (channel == "plan") {
        topics = mine.size() / digits;
        theirs.replace(topic * digits, digits, digits, '0');
      } else if (const auto at = theirs.find(assembly.fingerprint()); at != std::string::npos) {
        theirs.replace(at, 4, "else");
      }
      return std::vector<std::string>{std::string(mine), theirs};
    };
    try {
      check_agreement(assembly, plugins(), exchange);
      ADD_FAILURE() << "topic " << topic << " was not compared";
    } catch (const Error& error) {
      said += error.what() + std::string("\n");
    }
  }
  expect_part(said, "have different plans: the plan's fingerprint is " + assembly.fingerprint() +
                        " on the one, else");
}

}  // namespace
}  // namespace prun::test::agreement_test
