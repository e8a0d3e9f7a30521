// All places of a model that drop something draw apart: of embeddings, of layers of one segment or of
// several, and of adapters.
#include <gtest/gtest.h>

#include <set>

#include "support/assembly_fixture.hpp"

namespace prun::test::dropped_apart_test {
namespace {

using Sets = std::vector<std::string>;

// Returns what tells the draws of each op and layer apart, as kernels/dropout and kernels/attention have it.
std::multiset<std::int64_t> draws(const Program& program) {
  std::multiset<std::int64_t> all;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const Id op : program.segment(segment).ops(FunctionKind::forward)) {
      const std::string_view kind = program.op(op).kind();
      if ((kind != "dropout" && kind != "attention") || program.attr(op, "p") == 0) continue;
      for (std::int64_t layer = 0; layer < program.segment(segment).repeat; ++layer)
        all.insert((layer << 16) + static_cast<std::int64_t>(program.attr(op, "stream")));
    }
  return all;
}

struct Case {
  const char* name;
  Sets sets;
  std::string strategy;
  std::size_t places;
};

const std::string adapters =
    "[[strategy]]\nplugin = \"lora\"\ntargets = [\"q_proj\", \"v_proj\"]\ndropout = 0.1\n";
const Sets masked = {"data.mask=0.2", "data.mask_token=60", "model.dropout=0.1",
                     "model.attention_dropout=0.1"};
const Sets t5 = {"model.plugin=t5", "model.head_dim=16",  "model.seq=17",      "model.inputs=11",
                 "data.spans=0.3",  "data.span_length=2", "data.span_token=63"};

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(DroppedApart, EachPlaceOfAModelDrawsItsOwn) {
  const std::vector<Case> cases = {
      {"gpt", {"model.layers=3", "model.dropout=0.1", "model.attention_dropout=0.1"}, {}, 1 + 3 * 3},
      {"bert", with(masked, {"model.plugin=bert", "model.layers=3"}), {}, 1 + 3 * 3},
      {"modernbert", with(masked, {"model.plugin=modernbert", "model.layers=4"}), {}, 1 + 4 * 3},
      {"t5",
       with(t5, {"model.layers=2", "model.decoder_layers=3", "model.dropout=0.1"}),
       {},
       4 + 2 * 3 + 3 * 4},
      {"adapters of layers in turn",
       {"model.plugin=llama", "model.kv_heads=2", "model.layers=4", "model.window=5", "model.full_every=2"},
       adapters,
       4 * 2}};
  for (const Case& each : cases) {
    const Assembly assembly(tiny_recipe(each.sets, each.strategy), plugins());
    const std::multiset<std::int64_t> all = draws(assembly.unlowered());
    EXPECT_EQ(all.size(), each.places) << each.name;
    EXPECT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), all.size()) << each.name;
  }
}

}  // namespace
}  // namespace prun::test::dropped_apart_test
