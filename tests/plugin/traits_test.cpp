// What plugins may state of themselves, and which words say what is wrong with it.
#include "plugin/traits.hpp"

#include "plugin_fixtures.hpp"

namespace prun {
namespace {

using Traits = std::map<std::string, std::string>;

PluginNote note_of(const std::string& kind, const Traits& traits) {
  PluginNote note;
  note.kind = kind;
  note.name = "mine";
  note.traits = traits;
  return note;
}

std::string problem_of(const std::string& kind, const Traits& traits) {
  return traits_problem(note_of(kind, traits));
}

TEST(Traits, AreOfABoundedLength) {
  std::string names = "a";
  for (int i = 0; i < 20'000; ++i) names += ",a" + std::to_string(i);
  EXPECT_TRUE(test::holds(problem_of("strategy", {{"phase", "state"}, {"conflicts", names}}),
                          "bytes; at most 4096 are allowed"));
}

TEST(Traits, AreAcceptedWhereTheyMeanSomething) {
  EXPECT_EQ(problem_of("strategy", {{"phase", "shard"}, {"splits", "batch"}, {"conflicts", "a, zb-*"}}), "");
  EXPECT_EQ(problem_of("optimizer", {{"elementwise", "no"}}), "");
  EXPECT_EQ(problem_of("optimizer", {}), "");
  EXPECT_EQ(problem_of("schedule", {{"backward", "split"}}), "");
  EXPECT_EQ(problem_of("device", {{"driver", "libcuda.so.1"}, {"comm", "nccl"}}), "");
  EXPECT_EQ(problem_of("model", {}), "");
  EXPECT_EQ(problem_of("comm", {{"shared_folder", "UCX_POSIX_DIR"}, {"log", "MY_LOG_2"}}), "");
  EXPECT_EQ(problem_of("data", {{"tokens", "bytes"}}), "");
  EXPECT_EQ(problem_of("device", {{"tier", "paths"}, {"transfers", "kib,depth"}}), "");
  EXPECT_EQ(
      problem_of("strategy", {{"phase", "state"}, {"bench", "stage:0 way:late, none, x stage:1"}}),
      "its trait bench is 'stage:0 way:late, none, x stage:1'; it may list settings of its options, such "
      "as stage:1 or all keep:host");
  EXPECT_EQ(problem_of("strategy", {{"phase", "state"}, {"bench", "stage:0 way:late, x stage:1 way:late"}}),
            "");
}

TEST(Traits, AValueThatVariesMayHaveCommasInBrackets) {
  const auto problem = [](const std::string& varies) {
    return problem_of("strategy", {{"phase", "memory"}, {"varies", varies}});
  };
  EXPECT_EQ(problem("place:host|(device:75, host:25), on"), "");
  for (const char* wrong :
       {"place:(device:75, host:25", "place:(device:75, host:25)x", "place:()", "place:(A, b)"})
    EXPECT_NE(problem(wrong).find("it may list options, with the values"), std::string::npos) << wrong;
}

TEST(Traits, UnknownOnesAreNamedWithTheNearest) {
  EXPECT_EQ(problem_of("optimizer", {{"elementwize", "yes"}}),
            "it states an unknown trait 'elementwize'; did you mean 'elementwise'?");
  EXPECT_EQ(problem_of("schedule", {{"backward", "whole"}, {"colour", "red"}}),
            "it states an unknown trait 'colour'; there are also, backward, delay");
  EXPECT_EQ(problem_of("observer", {{"phase", "shard"}}),
            "it states an unknown trait 'phase'; there are also, log");
}

TEST(Traits, WrongValuesAreNamedWithThoseAllowed) {
  EXPECT_EQ(problem_of("strategy", {{"phase", "shards"}}),
            "its trait phase is 'shards'; it may list model, shard, partition, placed, state, collectives, "
            "memory, order");
  EXPECT_EQ(problem_of("strategy", {{"phase", "shard"}, {"splits", "batch,heads"}}),
            "its trait splits is 'batch,heads'; it may list batch, model, sequence");
  EXPECT_EQ(problem_of("strategy", {{"phase", "shard"}, {"frees", "stage:1, stage:2"}}), "");
  EXPECT_EQ(problem_of("strategy", {{"phase", "shard"}, {"frees", "stage"}}),
            "its trait frees is 'stage'; it may list settings of its options, such as stage:1");
  EXPECT_EQ(problem_of("strategy", {{"phase", "shard"}, {"conflicts", "a,,b"}}),
            "its trait conflicts is 'a,,b'; it may list names of strategy plugins, * and ? in them");
  EXPECT_EQ(problem_of("device", {{"comm", "nccl*"}}),
            "its trait comm is 'nccl*'; it must be the name of a plugin");
  EXPECT_EQ(problem_of("comm", {{"log", "my=log"}}),
            "its trait log is 'my=log'; it must be the name of a variable, such as MY_FOLDER");
  EXPECT_EQ(problem_of("data", {{"tokens", "words"}}), "its trait tokens is 'words'; it may be one of bytes");
  EXPECT_EQ(problem_of("model", {{"reads", "llama, qwen2"}}), "");
  EXPECT_EQ(problem_of("model", {{"reads", "llama,Qwen*"}}),
            "its trait reads is 'llama,Qwen*'; it may list names of small letters, digits, - and _");
  EXPECT_EQ(problem_of("optimizer", {{"elementwise", "true"}}),
            "its trait elementwise is 'true'; it may be one of yes, no");
}

TEST(Traits, RequiredOnesMustBeThere) {
  EXPECT_EQ(problem_of("strategy", {}),
            "it lacks the trait phase, which must be one of model, shard, partition, placed, state, "
            "collectives, memory, order");
  EXPECT_EQ(problem_of("schedule", {}), "it lacks the trait backward, which must be one of whole, split");
}

TEST(Traits, ListsAreReadItemByItem) {
  const PluginNote note = note_of("strategy", {{"splits", "batch"}, {"phase", "shard"}});
  EXPECT_TRUE(trait_lists(note, "splits", "batch"));
  EXPECT_FALSE(trait_lists(note, "splits", "bat"));
  EXPECT_FALSE(trait_lists(note, "conflicts", "batch"));
  EXPECT_EQ(trait_of(note, "phase"), "shard");
  EXPECT_EQ(trait_of(note, "backward"), "");
}

}  // namespace
}  // namespace prun
