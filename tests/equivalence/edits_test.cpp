// What a strategy edits in the updates of parameters outlives their packing into parts and their copying onto
// two stages of a pipeline: the layout equals one rank, or is refused.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::edits_test {
namespace {

const std::string data = "[[strategy]]\nplugin = 'data'\n",
                  pipeline = "[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n";

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}

// Head and embedding are tied.
Recipe edited(const std::string& model, const std::string& phase, const std::string& segment,
              const std::string& layout) {
  const std::string edit = "[[strategy]]\nplugin = 'own-rate-" + phase + "'\nsegment = '" + segment + "'\n";
  return tiny_recipe(
      {"model.plugin=" + model, "model.tied=true", "model.hidden=16", "model.heads=4", "model.ffn=32",
       "model.seq=8", "batch.micro=1", "batch.global=8", "device.pin=false", "device.threads=1",
       "optimizer.clip=0.05", "precision.compute=fp64", "precision.state=fp64", "run.poison=true"},
      edit + layout);
}

void expect_equal(const Recipe& recipe, const std::string& where) {
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 4);
  EXPECT_TRUE(verdict.equal()) << where << "\n" << to_text(verdict);
}

TEST(Edits, OfAnUpdateOutliveZero) {
  for (const char* model : {"gpt", "llama"})
    for (const char* phase : {"shard", "partition", "state", "memory"})
      for (const int stage : {1, 2, 3})
        expect_equal(edited(model, phase, "block", "[mesh]\ndp = 2\n" + data + zero(stage)),
                     std::string(model) + " " + phase + " zero " + std::to_string(stage));
}

TEST(Edits, OfAnUpdateAreMadeOfTheCopyOnAnotherStageToo) {
  for (const char* model : {"gpt", "llama"})
    for (const char* phase : {"shard", "partition"})
      for (const std::string& parts : {std::string(), zero(1), zero(3)})
        expect_equal(edited(model, phase, "embedding", "[mesh]\npp = 2\ndp = 2\n" + data + pipeline + parts),
                     std::string(model) + " " + phase + " " + parts);
}

TEST(Edits, OfOneOfTwoCopiesAreRefused) {
  for (const char* phase : {"state", "memory"})
    for (const std::string& parts : {std::string(), zero(1), zero(3)}) {
      const std::string layout = "[mesh]\npp = 2\ndp = 2\n" + data + pipeline + parts;
      for (const char* segment : {"embedding", "head"}) try {
          const Assembly assembly(edited("gpt", phase, segment, layout), plugins());
          ADD_FAILURE() << "accepted: " << phase << " " << segment << " " << parts;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("it is a copy of 'embedding.token'"), std::string::npos)
              << error.what();
          EXPECT_EQ(exit_code(error.code()), 2);
        }
      EXPECT_NO_THROW(Assembly(edited("gpt", phase, "block", layout), plugins()));
    }
}

// The copy stands for the original; on one rank there is nothing of the head's own to edit but the norm.
TEST(Edits, TheOthersOfASegmentStayWithoutThem) {
  expect_equal(edited("gpt", "shard", "head", "[mesh]\npp = 2\n" + pipeline), "head");
}

}  // namespace
}  // namespace prun::test::edits_test
